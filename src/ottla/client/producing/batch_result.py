"""The result of each batch that a producer has settled."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP, TopicPartition


class DeliveryStatus(Enum):
    """What became of a batch.

    ACKNOWLEDGED  stored, as durably as `acks` demands
    SENT          with acks 0: sent, nothing more is known
    REFUSED       certainly not stored
    UNKNOWN       stored or not
    """

    ACKNOWLEDGED = "acknowledged"
    SENT = "sent"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """`base_offset` is the first record's, -1 unless ACKNOWLEDGED; `tag` is the caller's argument to `send`."""

    partition: TopicPartition
    tag: object
    records_count: int
    size_bytes: int
    status: DeliveryStatus
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    error: OttlaError | None = None

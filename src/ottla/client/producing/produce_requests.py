"""Produce (API key 0): the request in pieces, so that batches are not copied, and the response by partition.

`BatchResult` is what becomes of each batch when the producer has settled it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple

from typing_extensions import Buffer

from ottla.client.producing.produce_queue import PendingBatch
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, error_code_of
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from ottla.protocol.api import ApiKey, is_flexible
from ottla.protocol.primitives import uvarint_bytes
from ottla.protocol.schemas.produce import PartitionProduceResponse, ProduceResponse


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


ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\x00"

# After these the batch may be stored or not; after any other error it is not.
UNKNOWN_OUTCOME: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)


class ProduceAnswer(NamedTuple):
    """`base_offset` is -1 with an error; `log_append_time_ms` is -1 unless the topic stamps records itself."""

    error: BrokerRefused | None
    base_offset: int
    log_append_time_ms: int


def produce_body(
    version: int, acks: int, timeout_ms: int, batches: Sequence[PendingBatch], transactional_id: str | None = None
) -> list[Buffer]:
    """The request's body for batches of different partitions, as pieces to send in order."""
    flexible = is_flexible(ApiKey.PRODUCE, version)
    topics = [(topic, list(rows)) for topic, rows in groupby(batches, key=lambda batch: batch.partition.topic)]
    pieces: list[Buffer] = []
    head = bytearray(_nullable(transactional_id, flexible) + _ACKS_AND_TIMEOUT.pack(acks, timeout_ms))
    head += _count(len(topics), flexible)
    for topic, rows in topics:
        name = topic.encode()
        head += (uvarint_bytes(len(name) + 1) if flexible else _INT16.pack(len(name))) + name
        head += _count(len(rows), flexible)
        for row in rows:
            head += _INT32.pack(row.partition.partition) + _count(len(row.batch), flexible)
            pieces += [bytes(head), row.batch]
            head = bytearray(_NO_TAGS if flexible else b"")
        head += _NO_TAGS if flexible else b""
    head += _NO_TAGS if flexible else b""
    return [*pieces, bytes(head)]


def read_answers(connection: Connection, version: int, body: memoryview) -> Mapping[TopicPartition, ProduceAnswer]:
    response = connection.decode(ApiKey.PRODUCE, version, body, ProduceResponse)
    return {
        TopicPartition(topic.name, row.index): _answer(topic.name, row)
        for topic in response.responses
        for row in topic.partition_responses
    }


def _answer(topic: str, row: PartitionProduceResponse) -> ProduceAnswer:
    if not row.error_code:
        return ProduceAnswer(None, row.base_offset, row.log_append_time_ms)
    subject = str(TopicPartition(topic, row.index))
    return ProduceAnswer(BrokerRefused(error_code_of(row.error_code), subject, row.error_message), -1, -1)


def _nullable(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else _INT16.pack(-1)
    data = text.encode()
    return (uvarint_bytes(len(data) + 1) if flexible else _INT16.pack(len(data))) + data


def _count(count: int, flexible: bool) -> bytes:
    return uvarint_bytes(count + 1) if flexible else _INT32.pack(count)

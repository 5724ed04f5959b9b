"""A producer's settings, and the result of each batch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.client.producing.produce_requests import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.identifiers import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from ottla.model.limits import MIB

# The leader recognises this many of a producer's last batches in each partition.
IDEMPOTENT_IN_FLIGHT_MAX: Final = 5


class Delivery(Enum):
    """The delivery state of a batch.

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
    delivery: Delivery
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    error: OttlaError | None = None


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Kafka's producer settings; times in ms.  Raises ConfigError for settings that contradict each other.

    acks                 -1 all in-sync replicas, 1 the leader, 0 no answer
    idempotent           None: with acks -1
    max_in_flight        unanswered requests for each broker; at most 5 when idempotent
    request_bytes_max    batches of several partitions share a request up to this; one batch may be larger
    buffer_bytes_max     `send` blocks while more than this is unacknowledged
    delivery_timeout_ms  from `send` to the result, all retries included
    halts_on_refusal     after a batch was refused the later ones of its partition are too, until `resume`: what is
                         stored has no gap.  For copies of a log; needs an idempotent producer
    """

    acks: int = ACKS_ALL
    idempotent: bool | None = None
    max_in_flight: int = IDEMPOTENT_IN_FLIGHT_MAX
    request_bytes_max: int = 1 * MIB
    buffer_bytes_max: int = 32 * MIB
    delivery_timeout_ms: int = 120_000
    allow_auto_topic_creation: bool = True
    halts_on_refusal: bool = False

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            raise ConfigError(f"acks {self.acks} does not exist", hint="use all (-1), 1 or 0")
        if self.max_in_flight < 1:
            raise ConfigError("a producer needs at least one request in flight")
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise ConfigError(f"an idempotent producer needs acks all, not {self.acks}")
        if self.is_idempotent and self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
            raise ConfigError(f"an idempotent producer has at most {IDEMPOTENT_IN_FLIGHT_MAX} requests in flight")
        if self.halts_on_refusal and not self.is_idempotent:
            raise ConfigError("without idempotence later batches may be stored before an earlier one is refused")

    @property
    def is_idempotent(self) -> bool:
        return self.acks == ACKS_ALL if self.idempotent is None else self.idempotent

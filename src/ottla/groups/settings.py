"""The operator's settings for groups.  Kafka's names and defaults; the broker builds it from its own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ConsumerTimes(NamedTuple):
    """The session and heartbeat times of a consumer group's members (KIP-848); a group may have its own."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and times of all groups of a broker; the comment on each field is Kafka's name."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = 2_147_483_647  # group.max.size

    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms

    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_max_size: int = 2_147_483_647  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors

    @property
    def consumer_times(self) -> ConsumerTimes:
        """For groups without their own."""
        return ConsumerTimes(self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms)

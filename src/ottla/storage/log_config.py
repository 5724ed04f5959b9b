"""The settings of one log, frozen: names and defaults are those of Kafka's topic settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FlushPolicy = Literal["ack", "interval", "os"]

FOREVER: Final = 2**63 - 1

# The paper flushes after a count of messages or a time; unset, policy `interval` uses these.
INTERVAL_FLUSH_MESSAGES: Final = 10_000
INTERVAL_FLUSH_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log.  -1 means "no limit" where Kafka says so; None means "not set"."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    flush_policy: FlushPolicy = "ack"
    flush_messages: int | None = None
    flush_ms: int | None = None
    cleanup_policy: str = "delete"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = 24 * 3600 * 1000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER
    message_timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    record_validation: str = "none"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    # Of the broker, not of the topic; it holds from the next opening on.
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    # Of the log itself: a clean took records out, under its present policy or an earlier one.
    was_compacted: bool = False

    @property
    def may_have_gaps(self) -> bool:
        """Whether an offset without a record is no damage."""
        return self.was_compacted or "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment rolls: only closed ones are cleaned, so `max.compaction.lag.ms` counts too."""
        if "compact" in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def flush_messages_max(self) -> int:
        """Unflushed messages at which a flush is due."""
        if self.flush_messages is not None:
            return self.flush_messages
        return INTERVAL_FLUSH_MESSAGES if self.flush_policy == "interval" else FOREVER

    @property
    def flush_ms_max(self) -> int:
        """Age of the oldest unflushed message at which a flush is due."""
        if self.flush_policy == "ack":
            return 0
        if self.flush_ms is not None:
            return self.flush_ms
        return INTERVAL_FLUSH_MS if self.flush_policy == "interval" else FOREVER

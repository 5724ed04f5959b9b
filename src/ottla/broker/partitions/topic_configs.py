"""What a topic's settings mean: for its logs, as the one place that knows both sets of names; for produced batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from ottla.coordination.configs import ConfigRegistry
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model import topic_settings as topic
from ottla.model.broker_settings import PRODUCER_ID_EXPIRATION_MS
from ottla.model.identifiers import TopicPartition
from ottla.model.settings import BrokerSettings, TopicSettings
from ottla.records.compression import Codec
from ottla.records.record_bounds import COMPILED, IN_PYTHON, RecordCheck
from ottla.storage.log_config import FOREVER, FlushPolicy, LogConfig

_UNSET: Final = 2**63 - 1
# Distinct overrides that are cached; beyond this the cache is cleared.
CONFIGS_KEPT_MAX: Final = 256
LOG_APPEND_TIME: Final = "LogAppendTime"
_AS_IT_CAME: Final = "producer"
# The library's greatest level does what Kafka's levels up to 17 do.
_LZ4_LEVEL_MAX: Final = 12
_ZSTD_LEVEL_MIN: Final = -7


class LogConfigs:
    """Settings of logs and topics, made once for the same overrides: thousands of logs have few that differ."""

    def __init__(self, broker: BrokerSettings) -> None:
        self._broker = broker
        self._made: dict[frozenset[tuple[str, str]], _Made] = {}

    def of(self, overrides: Mapping[str, str]) -> LogConfig:
        """As `log_config`.  Raises `ConfigError`."""
        return self._of(overrides).log

    def allows_unclean_election(self, overrides: Mapping[str, str]) -> bool:
        """`unclean.leader.election.enable` of a topic.  Raises `ConfigError`."""
        return self._of(overrides).allows_unclean_election

    def _of(self, overrides: Mapping[str, str]) -> _Made:
        key = frozenset(overrides.items())
        made = self._made.get(key)
        if made is None:
            of = TopicSettings(overrides, self._broker)
            made = _Made(_log_config(of, self._broker), of[topic.UNCLEAN_LEADER_ELECTION_ENABLE])
            if len(self._made) >= CONFIGS_KEPT_MAX:
                self._made.clear()
            self._made[key] = made
        return made


class _Made(NamedTuple):
    log: LogConfig
    allows_unclean_election: bool


class TopicConfigs:
    """The settings in force for each topic, as the view of the tree that was read last has them."""

    def __init__(self, registry: ConfigRegistry, broker: BrokerSettings) -> None:
        self._registry: Final = registry
        self._configs: Final = LogConfigs(broker)

    def log_config(self, topic_partition: TopicPartition) -> LogConfig:
        return self._configs.of(self._registry.view.topic(topic_partition.topic))

    def min_in_sync(self, of: Topic, partition: PartitionNode) -> int:
        """The least number of in-sync replicas with which records of the partition are acknowledged."""
        return partition.min_in_sync(self._configs.of(self._registry.view.topic(of.name)).min_insync_replicas)

    def allows_unclean_election(self, of: Topic) -> bool:
        return self._configs.allows_unclean_election(self._registry.view.topic(of.name))


def log_config(overrides: Mapping[str, str], broker: BrokerSettings) -> LogConfig:
    """A log's settings: the topic's own values over the broker's.  Raises `ConfigError`."""
    return _log_config(TopicSettings(overrides, broker), broker)


def _log_config(of: TopicSettings, broker: BrokerSettings) -> LogConfig:
    return LogConfig(
        segment_bytes=of[topic.SEGMENT_BYTES],
        segment_ms=of[topic.SEGMENT_MS],
        segment_jitter_ms=of[topic.SEGMENT_JITTER_MS],
        segment_index_bytes=of[topic.SEGMENT_INDEX_BYTES],
        index_interval_bytes=of[topic.INDEX_INTERVAL_BYTES],
        retention_ms=of[topic.RETENTION_MS],
        retention_bytes=of[topic.RETENTION_BYTES],
        file_delete_delay_ms=of[topic.FILE_DELETE_DELAY_MS],
        flush_policy=cast("FlushPolicy", of[topic.FLUSH_POLICY]),
        flush_messages=_none_if_unset(of[topic.FLUSH_MESSAGES]),
        flush_ms=_none_if_unset(of[topic.FLUSH_MS]),
        cleanup_policy=",".join(of[topic.CLEANUP_POLICY]),
        min_cleanable_dirty_ratio=of[topic.MIN_CLEANABLE_DIRTY_RATIO],
        min_compaction_lag_ms=of[topic.MIN_COMPACTION_LAG_MS],
        max_compaction_lag_ms=of[topic.MAX_COMPACTION_LAG_MS],
        delete_retention_ms=of[topic.DELETE_RETENTION_MS],
        max_message_bytes=of[topic.MAX_MESSAGE_BYTES],
        message_timestamp_type=of[topic.MESSAGE_TIMESTAMP_TYPE],
        message_timestamp_before_max_ms=of[topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        message_timestamp_after_max_ms=of[topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        min_insync_replicas=of[topic.MIN_INSYNC_REPLICAS],
        compression_type=of[topic.COMPRESSION_TYPE],
        record_validation=of[topic.RECORD_VALIDATION],
        compression_gzip_level=of[topic.COMPRESSION_GZIP_LEVEL],
        compression_lz4_level=of[topic.COMPRESSION_LZ4_LEVEL],
        compression_zstd_level=of[topic.COMPRESSION_ZSTD_LEVEL],
        producer_id_expiration_ms=broker[PRODUCER_ID_EXPIRATION_MS],
    )


def _none_if_unset(value: int) -> int | None:
    """Kafka's default of "never" is the greatest number: whether it was set decides for policy `interval`."""
    return None if value == _UNSET else value


class BatchOpening(NamedTuple):
    """Why a topic's batches are opened.  `codec` None: batches keep their own."""

    codec: Codec | None
    level: int | None
    requires_keys: bool
    # Bounds of the records' times around the broker's; both None where the broker's time is stamped.
    before_max_ms: int | None
    after_max_ms: int | None
    # Of the records of compressed batches; those of others are checked before.
    check_records: RecordCheck | None = None
    checks_compressed: bool = False

    @property
    def walks_always(self) -> bool:
        return self.requires_keys or self.before_max_ms is not None

    @property
    def opens_uncompressed(self) -> bool:
        return self.walks_always or self.codec not in (None, Codec.NONE)

    def target(self, codec: Codec) -> Codec:
        """The codec with which a batch of `codec` is stored."""
        return codec if self.codec is None else self.codec


def opening_of(config: LogConfig) -> BatchOpening | None:
    """What a topic's settings require, None when its batches need not be opened.

    The greatest timestamp of a batch is in its head, so the bound on future timestamps alone opens no batch.
    """
    codec, level = _codec_and_level(config)
    requires_keys = "compact" in config.cleanup_policy
    has_times = config.message_timestamp_type != LOG_APPEND_TIME
    before_max_ms = config.message_timestamp_before_max_ms
    bounds_past = has_times and before_max_ms != FOREVER
    checks_compressed = config.record_validation == "all"
    if codec is None and not requires_keys and not bounds_past and not checks_compressed:
        return None
    after_max_ms = config.message_timestamp_after_max_ms if has_times else None
    check = record_check_of(config)
    bound_ms = before_max_ms if bounds_past else None
    return BatchOpening(codec, level, requires_keys, bound_ms, after_max_ms, check, checks_compressed)


def record_check_of(config: LogConfig) -> RecordCheck | None:
    """Checks whether the records of a topic's batches can be read (`record.validation`); None: they are not checked."""
    if config.record_validation == "auto":
        return COMPILED
    return None if config.record_validation == "none" else COMPILED or IN_PYTHON


def _codec_and_level(config: LogConfig) -> tuple[Codec | None, int | None]:
    name = config.compression_type
    if name == _AS_IT_CAME:
        return None, None
    if name == "uncompressed":
        return Codec.NONE, None
    codec = Codec.from_name(name)
    levels = {
        Codec.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
        Codec.LZ4: min(config.compression_lz4_level, _LZ4_LEVEL_MAX),
        Codec.ZSTD: max(config.compression_zstd_level, _ZSTD_LEVEL_MIN),
    }
    return codec, levels.get(codec)

"""Maps settings to a log's configuration: the one place that knows both sets of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from ottla.coordination.configs import ConfigRegistry
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model import topic_settings as topic
from ottla.model.broker_settings import PRODUCER_ID_EXPIRATION_MS
from ottla.model.identifiers import TopicPartition
from ottla.model.settings import BrokerSettings, TopicSettings
from ottla.storage.log_config import FlushPolicy, LogConfig

_UNSET: Final = 2**63 - 1
# Distinct overrides that are cached; beyond this the cache is cleared.
CONFIGS_KEPT_MAX: Final = 256


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

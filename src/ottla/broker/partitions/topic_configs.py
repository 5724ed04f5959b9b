"""The settings in force for each topic: its own in the tree over the broker's."""

from __future__ import annotations

from typing import Final

from ottla.broker.partitions.log_configs import LogConfigs
from ottla.coordination.configs import ConfigRegistry
from ottla.coordination.topics_view import Partition, Topic
from ottla.model.identifiers import TopicPartition
from ottla.model.settings import BrokerSettings
from ottla.storage.log_config import LogConfig


class TopicConfigs:
    """As the view of the tree that was read last has them."""

    def __init__(self, registry: ConfigRegistry, broker: BrokerSettings) -> None:
        self._registry: Final = registry
        self._configs: Final = LogConfigs(broker)

    def log_config(self, topic_partition: TopicPartition) -> LogConfig:
        return self._configs.of(self._registry.view.topic(topic_partition.topic))

    def min_in_sync(self, topic: Topic, partition: Partition) -> int:
        """The least number of in-sync replicas with which records of the partition are acknowledged."""
        return partition.min_in_sync(self._configs.of(self._registry.view.topic(topic.name)).min_insync_replicas)

    def allows_unclean_election(self, topic: Topic) -> bool:
        return self._configs.allows_unclean_election(self._registry.view.topic(topic.name))

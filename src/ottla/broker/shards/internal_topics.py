"""The topics of coordinators: their settings."""

from __future__ import annotations

from ottla.broker.context import NewTopic
from ottla.model import broker_settings as setting
from ottla.model.identifiers import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.settings import BrokerSettings

_PARTITIONS_COUNT = {
    OFFSETS_TOPIC: setting.OFFSETS_TOPIC_NUM_PARTITIONS,
    TRANSACTIONS_TOPIC: setting.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
}
_REPLICATION_FACTOR = {
    OFFSETS_TOPIC: setting.OFFSETS_TOPIC_REPLICATION_FACTOR,
    TRANSACTIONS_TOPIC: setting.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
}


def internal_topic(name: str, settings: BrokerSettings, *, is_sole: bool) -> NewTopic:
    """The topic as Apache Kafka creates it.

    As there, it is not created while fewer brokers are live than its replication factor (KIP-115): it would keep too
    few replicas for ever.  A broker that `is_sole` needs one replica: no other broker can join.
    """
    return NewTopic(
        name,
        partitions_count=settings[_PARTITIONS_COUNT[name]],
        replication_factor=1 if is_sole else settings[_REPLICATION_FACTOR[name]],
        config=internal_topic_config(name, settings),
    )


def internal_topic_config(name: str, settings: BrokerSettings) -> dict[str, str]:
    """What is set for it when it is created: without compaction it would lose its state or grow for ever."""
    if name == OFFSETS_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings[setting.OFFSETS_TOPIC_SEGMENT_BYTES]),
        }
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(settings[setting.TRANSACTION_STATE_LOG_MIN_ISR]),
        "segment.bytes": str(settings[setting.TRANSACTION_STATE_LOG_SEGMENT_BYTES]),
        # A leader that lacks the newest records would lose decisions that were answered.
        "unclean.leader.election.enable": "false",
    }

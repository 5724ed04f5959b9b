"""`__consumer_offsets`: its settings."""

from __future__ import annotations

from ottla.broker.context import NewTopic
from ottla.model.broker_settings import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.model.settings import BrokerSettings


def offsets_topic(settings: BrokerSettings, *, is_sole: bool) -> NewTopic:
    """The topic as Apache Kafka creates it: compacted, and stored with the producer's codec.

    As there it is not created while fewer brokers are live than it is to have replicas (KIP-115): it would keep the
    first brokers' few for ever.  A broker that `is_sole` has no use for more than one: no other can come.
    """
    return NewTopic(
        OFFSETS_TOPIC,
        partitions_count=settings[OFFSETS_TOPIC_NUM_PARTITIONS],
        replication_factor=1 if is_sole else settings[OFFSETS_TOPIC_REPLICATION_FACTOR],
        config=offsets_topic_config(settings),
    )


def offsets_topic_config(settings: BrokerSettings) -> dict[str, str]:
    """What is set for it when it is created."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings[OFFSETS_TOPIC_SEGMENT_BYTES]),
    }

"""`__consumer_offsets`: its settings, and the partition that a group belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ottla.broker.context import NewTopic
from ottla.model.broker_settings import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.model.settings import BrokerSettings

_HASH_LIMIT: Final = 1 << 32
_SIGN: Final = 1 << 31


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


@lru_cache(maxsize=4096)
def partition_of(group_id: str, partitions_count: int) -> int:
    """The partition that holds a group: `String.hashCode` of its id as Java has it, without its sign."""
    units = group_id.encode("utf-16-be")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + (units[index] << 8) + units[index + 1]) % _HASH_LIMIT
    signed = hashed - _HASH_LIMIT if hashed >= _SIGN else hashed
    # The smallest int has no absolute value in Java; Apache Kafka takes 0 for it.
    return 0 if signed == -_SIGN else abs(signed) % partitions_count

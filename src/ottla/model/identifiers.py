"""Names of things: brokers, topics, partitions, offsets.

`NewType` costs nothing in annotations; values are wrapped at the edge, never in loops.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NewType

NodeId = NewType("NodeId", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ProducerId = NewType("ProducerId", int)

NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1

# Kafka's own bound: the name becomes a directory with "-partition" after it (255 bytes on most file systems).
TOPIC_NAME_LENGTH_MAX: Final = 249
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z", re.ASCII)
OFFSETS_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state"})


class TopicPartition(NamedTuple):
    """A partition of a topic, written `topic-partition` in logs and on disk."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic name, as a sentence for its user; None when it is legal."""
    if not name:
        return "the topic name is empty"
    if name in {".", ".."}:
        return "the topic name cannot be '.' or '..'"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters, {TOPIC_NAME_LENGTH_MAX} are allowed"
    if _TOPIC_NAME.match(name) is None:
        return f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None

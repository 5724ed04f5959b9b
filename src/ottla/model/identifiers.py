"""Identifiers of brokers, topics, partitions and offsets, and the text form of UUIDs.

`NewType` costs nothing in annotations; values are wrapped at the edge, never in loops.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple, NewType
from uuid import UUID

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
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


class TopicPartition(NamedTuple):
    """A partition of a topic, written `topic-partition` in logs and on disk."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Each topic with the numbers of its partitions, both in order: the form of most requests."""
    return [
        (topic, [each.partition for each in group])
        for topic, group in groupby(sorted(partitions), key=lambda partition: partition.topic)
    ]


def topic_name_problem(name: str) -> str | None:
    """The problem of a topic name, as a sentence for its user; None when it is legal."""
    if not name:
        return "the topic name is empty"
    if name in {".", ".."}:
        return "the topic name cannot be '.' or '..'"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the topic name has {len(name)} characters, {TOPIC_NAME_LENGTH_MAX} are allowed"
    if _TOPIC_NAME.match(name) is None:
        return f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


UUID_TEXT_LENGTH: Final = 22

# Kafka reserves the smallest ids: zero means "no id", one names the metadata topic of KRaft (KIP-516, KIP-500).
RESERVED_UUIDS: Final = frozenset(UUID(int=value) for value in range(100))


def uuid_to_text(value: UUID) -> str:
    """The id in Kafka's 22 characters, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The id of a text by `uuid_to_text`; raises `ValueError` for anything else."""
    if len(text) != UUID_TEXT_LENGTH:
        raise ValueError(f"{text!r} has {len(text)} characters, an id has {UUID_TEXT_LENGTH}")
    try:
        value = UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error
    if uuid_to_text(value) != text:
        raise ValueError(f"{text!r} has bits beyond the 16 bytes of an id")
    return value

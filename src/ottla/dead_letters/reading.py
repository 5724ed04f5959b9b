"""The letters of a dead-letter topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.client.fetching.messages import Message, messages_between
from ottla.client.fetching.offsets import log_ranges
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.dead_letters.letter import DeadLetter, NotADeadLetter, letter_of
from ottla.model.identifiers import TopicPartition


class StoredLetter(NamedTuple):
    """A message of a dead-letter topic, and the letter that it is; None: it is none."""

    message: Message
    letter: DeadLetter | None


def letters_of(cluster: Cluster, topic: str) -> Iterator[StoredLetter]:
    """All that a dead-letter topic has now.  Raises `UnknownTopic`."""
    cluster.forget([topic])
    log = TopicLog(cluster, topic)
    for message in log.read_in(log.ranges()):
        yield StoredLetter(message, letter_or_none(message))


def message_at(cluster: Cluster, place: TopicPartition, offset: int) -> Message | None:
    """The message at this offset; None when there is none (any more)."""
    log = log_ranges(cluster, [place])[place]
    if not log.start <= offset < log.stop:
        return None
    return next(messages_between(cluster, {place: offset}, {place: offset + 1}), None)


def letter_or_none(message: Message) -> DeadLetter | None:
    """None for a message that is no letter."""
    try:
        return letter_of(message)
    except NotADeadLetter:
        return None

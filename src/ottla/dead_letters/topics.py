"""The dead-letter topic of a topic: its name, how it is made, and its letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.fetching.messages import Message, messages_between
from ottla.client.fetching.offsets import log_ranges
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.metadata import TopicInfo
from ottla.dead_letters.letter import DeadLetter, NotADeadLetter, letter_of
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.model.limits import KIB


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


SUFFIX: Final = ".dead-letter"
# A letter is larger than its record by headers.
ROOM_BYTES: Final = 64 * KIB
_MAX_MESSAGE_BYTES: Final = "max.message.bytes"
# An erasure knows a letter's copy by its time, which a broker with LogAppendTime as its default would replace.
_KEPT: Final = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}


def dead_letter_topic(topic: str, given: str | None = None) -> str:
    """`given`, or the topic's name with the suffix; a topic that has it already is its own.  Raises `ConfigError`."""
    name = given or (topic if topic.endswith(SUFFIX) else topic + SUFFIX)
    problem = topic_name_problem(name)
    if problem is not None:
        raise ConfigError(f"dead letters of {topic}: {problem}", hint="name another topic for them")
    return name


def ensure_topic(cluster: Cluster, name: str, like: TopicInfo | None) -> TopicInfo:
    """The topic of dead letters; it is made when it is not there.

    It has as many partitions and replicas as the topic `like`, room for its largest records, and keeps letters until
    they are deleted by a user.  None: that topic was deleted.
    """
    (found,) = cluster.refresh([name])
    if not found.error_code:
        return found
    if found.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise BrokerRefused(found.error_code, f"topic {name}")
    admin = Admin(cluster)
    new = NewTopic(name, 1, configs=_KEPT)
    if like is not None:
        largest = admin.describe_configs(ConfigResource(ResourceType.TOPIC, like.name), [_MAX_MESSAGE_BYTES])
        entry = largest.get(_MAX_MESSAGE_BYTES)
        room = {} if entry is None or not entry.value else {_MAX_MESSAGE_BYTES: str(int(entry.value) + ROOM_BYTES)}
        replicas = max((len(each.replicas) for each in like.partitions.values()), default=1)
        new = NewTopic(name, len(like.partitions), replicas, {**_KEPT, **room})
    (outcome,) = admin.create_topics([new]).values()
    # Another writer of letters may have been faster.
    if isinstance(outcome, BrokerRefused) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise outcome
    return cluster.topic(name)

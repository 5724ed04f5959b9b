"""Which partitions are read: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.offset_spec import parse_assignment
from ottla.spark.options.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """All partitions of every topic whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Topics | TopicPattern | Assigned


def subscribed_names(subscription: Subscription) -> list[str] | None:
    """The topics that are named; None for a pattern."""
    if isinstance(subscription, Topics):
        return list(subscription.names)
    if isinstance(subscription, Assigned):
        return list(dict.fromkeys(partition.topic for partition in subscription.partitions))
    return None


def is_subscribed(subscription: Subscription, place: TopicPartition) -> bool:
    """Whether the subscription includes this partition, if it exists."""
    if isinstance(subscription, Topics):
        return place.topic in subscription.names
    if isinstance(subscription, Assigned):
        return place in subscription.partitions
    return re.fullmatch(subscription.pattern, place.topic) is not None


def parse_subscription(reader: OptionReader) -> Subscription:
    """Raises `SparkOptionError`, which names the option."""
    given = reader.one_of(("subscribe", "subscribePattern", "assign"))
    if given is None:
        raise SparkOptionError(
            "none of the options 'subscribe', 'subscribePattern' and 'assign' is given", hint="name the topics to read"
        )
    name, value = given
    if name == "assign":
        return Assigned(parse_assignment(name, value))
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise SparkOptionError(f"the option {name!r} is not a regular expression: {error}") from None
        return TopicPattern(value)
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise SparkOptionError(f"the option {name!r} names no topic", hint="write topic1,topic2")
    for topic in topics:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise SparkOptionError(f"the option {name!r}: {problem}")
    return Topics(topics)

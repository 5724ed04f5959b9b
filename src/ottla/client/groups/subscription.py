"""What a consumer reads, and by how many streams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition, topic_name_problem

# A stream has a thread of its user's: more are a mistake.
STREAMS_MAX: Final = 10_000


def check_pattern(pattern: str) -> None:
    """Raises ConfigError for what is no pattern of Python's `re`."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigError(f"{pattern!r} is not a pattern: {error}", hint="it is one of Python's re") from None


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics by name: those that `allow` matches as a whole and `deny` does not; patterns of Python's `re`.

    Topics whose names begin with `__` are the cluster's own: only a pattern that begins so has them.
    """

    allow: str
    deny: str | None = None

    def __post_init__(self) -> None:
        for pattern in (self.allow, "" if self.deny is None else self.deny):
            check_pattern(pattern)

    def select(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that it names, sorted."""
        allow, deny = re.compile(self.allow), re.compile(self.deny) if self.deny is not None else None
        has_internal = self.allow.startswith("__")
        return sorted(
            topic
            for topic in topics
            if (has_internal or not topic.startswith("__"))
            and allow.fullmatch(topic)
            and not (deny is not None and deny.fullmatch(topic))
        )


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics with the count of streams of each, or a filter with the count of streams that share what it selects.

    Streams are numbered from 0: those of a topic, or those of the filter.  With `partitions` only these of the topics
    are read: the user assigns them, and no group shares them out.
    """

    topics: Mapping[str, int]
    filter: TopicFilter | None = None
    filter_streams_count: int = 0
    partitions: frozenset[TopicPartition] | None = None

    @classmethod
    def of_partitions(cls, partitions: Iterable[TopicPartition]) -> Subscription:
        """What a user assigns."""
        named = frozenset(partitions)
        for partition in named:
            if isinstance(partition.partition, bool) or not isinstance(partition.partition, int) or partition[1] < 0:
                raise ConfigError(f"{partition.partition!r} is not a partition's number", hint="they begin with 0")
        return cls(dict.fromkeys((partition.topic for partition in named), 1), partitions=named)

    @classmethod
    def by_name(cls, topics: Mapping[str, int]) -> Subscription:
        """As a user gives it; a copy is kept."""
        if not isinstance(topics, Mapping):
            raise ConfigError(
                f"topics are given with their counts of streams, not as {type(topics).__name__}",
                hint='write them as {"page-views": 1}',
            )
        return cls(dict(topics))

    def __post_init__(self) -> None:
        if self.filter is not None and self.topics:
            raise ConfigError("a consumer reads topics by name or by a filter, not both")
        for topic in self.topics:
            problem = topic_name_problem(topic) if isinstance(topic, str) else f"{topic!r} is no topic's name"
            if problem is not None:
                raise ConfigError(problem, hint="topic names have 1 to 249 ASCII letters, digits, '.', '_' and '-'")
        counts = [self.filter_streams_count] if self.filter is not None else list(self.topics.values())
        if not counts:
            raise ConfigError("a consumer reads at least one topic")
        for count in counts:
            if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= STREAMS_MAX:
                raise ConfigError(f"a topic is read by 1 to {STREAMS_MAX} streams, not {count!r}")

    def streams_counts(self, existing: Iterable[str]) -> Mapping[str, int]:
        """The topics that are read, each with its count of streams; `existing` are those that a filter selects from."""
        if self.filter is None:
            return self.topics
        return dict.fromkeys(self.filter.select(existing), self.filter_streams_count)

"""Counts for each topic and hour in three places, and their comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.demo.day import hour_name


class Bucket(NamedTuple):
    """A topic and an hour since 1970 (UTC)."""

    topic: str
    hour: int

    def __str__(self) -> str:
        return f"topic {self.topic}, hour {hour_name(self.hour)}"


Counts: TypeAlias = Counter[Bucket]
# Counts as processes exchange them: topic, hour, count.
Rows: TypeAlias = list[tuple[str, int, int]]


def to_rows(counts: Counts) -> Rows:
    return [(bucket.topic, bucket.hour, count) for bucket, count in sorted(counts.items())]


def from_rows(rows: Iterable[tuple[str, int, int]]) -> Counts:
    counts: Counts = Counter()
    for topic, hour, count in rows:
        counts[Bucket(topic, hour)] += count
    return counts


class Line(NamedTuple):
    """The three counts of one topic and hour, or of a sum of them."""

    produced: int
    stored: int
    loaded: int

    @property
    def is_equal(self) -> bool:
        return self.produced == self.stored == self.loaded


@dataclass(frozen=True, slots=True)
class Audit:
    """`produced`: acknowledged to the producers; `stored`: read back from the broker; `loaded`: in the lake's files."""

    produced: Counts
    stored: Counts
    loaded: Counts

    @property
    def hours(self) -> list[int]:
        """Every hour with a count."""
        return sorted({bucket.hour for bucket in self._buckets()})

    def line(self, bucket: Bucket) -> Line:
        return Line(self.produced[bucket], self.stored[bucket], self.loaded[bucket])

    def topic_line(self, topic: str) -> Line:
        return Line(*(_sum(counts, topic) for counts in (self.produced, self.stored, self.loaded)))

    @property
    def differences(self) -> list[tuple[Bucket, Line]]:
        """The buckets in which the three differ: a loss in one is not hidden by a surplus in another."""
        lines = ((bucket, self.line(bucket)) for bucket in sorted(self._buckets()))
        return [(bucket, line) for bucket, line in lines if not line.is_equal]

    def _buckets(self) -> Iterator[Bucket]:
        yield from self.produced.keys() | self.stored.keys() | self.loaded.keys()


def _sum(counts: Counts, topic: str) -> int:
    return sum(count for bucket, count in counts.items() if bucket.topic == topic)

"""Conditions of a query that shorten what is read: on topic, partition, offset and timestamp.

Spark evaluates every condition again, so a range may be longer than needed, and must never be shorter.  An upper bound
of the timestamp shortens nothing: records need not be in the order of their timestamps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottla.model.identifiers import TopicPartition

_COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(slots=True)
class Bounds:
    """What may fulfil all conditions: `[first_offset, end_offset)` of these topics and partitions, from `time_ms` on.

    None: any.  Sets can be empty, and ranges too: then nothing is read.
    """

    topics: set[str] | None = None
    partitions: set[int] | None = None
    first_offset: int = 0
    end_offset: int | None = None
    time_ms: int | None = None

    def admits(self, place: TopicPartition) -> bool:
        return (self.topics is None or place.topic in self.topics) and (
            self.partitions is None or place.partition in self.partitions
        )

    def clipped(self, first: int, end: int) -> tuple[int, int]:
        """The part of `[first, end)` that is left; empty at `first` when nothing is."""
        start = max(first, self.first_offset)
        stop = end if self.end_offset is None else min(end, self.end_offset)
        return (start, stop) if start < stop else (first, first)


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Of the conditions that hold together; those that say nothing about what is read are left out."""
    bounds = Bounds()
    for each in filters:
        if isinstance(each, In):
            _allow(bounds, each.attribute, set(each.value))
        elif isinstance(each, _COMPARISONS):
            _compare(bounds, each)
    return bounds


def _compare(bounds: Bounds, condition: Filter) -> None:
    assert isinstance(condition, _COMPARISONS)
    attribute, value = condition.attribute, condition.value
    is_equal = isinstance(condition, EqualTo | EqualNullSafe)
    if attribute in (("topic",), ("partition",)):
        if is_equal:
            _allow(bounds, attribute, {value})
        return
    if attribute == ("offset",) and _is_number(value):
        if is_equal or isinstance(condition, GreaterThan | GreaterThanOrEqual):
            bounds.first_offset = max(bounds.first_offset, value + isinstance(condition, GreaterThan))
        if is_equal or isinstance(condition, LessThan | LessThanOrEqual):
            end = value + (not isinstance(condition, LessThan))
            bounds.end_offset = end if bounds.end_offset is None else min(bounds.end_offset, end)
    elif attribute == ("timestamp",) and isinstance(value, datetime) and not _is_upper(condition):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        time_ms = math.floor(moment.timestamp() * 1000)
        bounds.time_ms = time_ms if bounds.time_ms is None else max(bounds.time_ms, time_ms)


def _allow(bounds: Bounds, attribute: tuple[str, ...], values: set[object]) -> None:
    if attribute == ("topic",):
        topics = {value for value in values if isinstance(value, str)}
        bounds.topics = topics if bounds.topics is None else bounds.topics & topics
    elif attribute == ("partition",):
        numbers = {value for value in values if isinstance(value, int)}
        bounds.partitions = numbers if bounds.partitions is None else bounds.partitions & numbers
    elif attribute == ("offset",):
        offsets = {value for value in values if isinstance(value, int)}
        bounds.first_offset = max(bounds.first_offset, min(offsets, default=0))
        end = max(offsets, default=-1) + 1
        bounds.end_offset = end if bounds.end_offset is None else min(bounds.end_offset, end)


def _is_upper(condition: Filter) -> bool:
    return isinstance(condition, LessThan | LessThanOrEqual)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

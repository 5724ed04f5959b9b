"""`spark.read.format("ottla")`: the driver resolves the offsets once; the tasks read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.fetching.offsets import IsolationLevel
from ottla.lost_offsets import LostRange
from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import SparkOptionError, rows_with_brief_errors, with_brief_errors
from ottla.spark.options.offset_spec import AtGroup, AtOffsets, AtTimestamp, Offsets
from ottla.spark.options.read_options import ReadOptions
from ottla.spark.source.cluster_view import ClusterView
from ottla.spark.source.offset_ranges import OffsetRange, plan_tasks, ranges_between
from ottla.spark.source.range_reading import ReadTask, read_task, task_of
from ottla.spark.spark_features import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from ottla.spark.worker_heap import settle_heap

_COMPARISONS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(slots=True)
class Bounds:
    """What may fulfil all conditions: `[first_offset, end_offset)` of these topics and partitions, from `time_ms` on.

    Spark evaluates every condition again, so a range may be longer than needed, and must never be shorter.  An upper
    bound of the timestamp shortens nothing: records need not be in the order of their timestamps.

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


class TaskPartition(InputPartition):
    """One Spark task's share."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)
        self.task = task


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._bounds = Bounds()

    @with_brief_errors
    def partitions(self) -> Sequence[InputPartition]:
        ending = self._options.ending
        with ClusterView(self._options) as view:
            subscribed = view.subscribed()
            places = subscribed.partitions
            first = self._settled(view, places, is_start=True)
            end = self._settled(view, places, is_start=False)
            if self._options.isolation is IsolationLevel.READ_COMMITTED and not isinstance(ending, AtOffsets):
                # A start behind an open transaction is in the log: there is only nothing to read of it yet.
                log_ends = view.log_ends(places)
                end = {place: max(limit, min(first[place], log_ends[place])) for place, limit in end.items()}
            self._check_order(view, subscribed.topic_ids, first, end)
            first, end = self._bounded(view, first, end)
        return task_partitions(self._options, self._columns, ranges_between(first, end, subscribed.topic_ids))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def _settled(self, view: ClusterView, places: list[TopicPartition], *, is_start: bool) -> Offsets:
        spec = self._options.starting if is_start else self._options.ending
        offsets = view.offsets(spec, places, is_start=is_start)
        if isinstance(spec, AtOffsets | AtGroup):
            return view.checked(spec.option, offsets)
        return offsets

    def _bounded(self, view: ClusterView, first: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """What the query's conditions leave of the ranges."""
        bounds = self._bounds
        places = [place for place in end if bounds.admits(place) and first[place] < end[place]]
        ranges = {place: bounds.clipped(first[place], end[place]) for place in places}
        if bounds.time_ms is not None:
            found = view.offsets(AtTimestamp("timestamp", bounds.time_ms), ranges, is_start=False)
            ranges = {place: (max(start, found[place]), stop) for place, (start, stop) in ranges.items()}
        return {place: start for place, (start, _) in ranges.items()}, {
            place: stop for place, (_, stop) in ranges.items()
        }

    def _check_order(self, view: ClusterView, topic_ids: Mapping[str, UUID], first: Offsets, end: Offsets) -> None:
        """An end before its start is the user's mistake when both were given, else retention moved the start."""
        wrong = sorted(place for place in end if end[place] < first[place])
        if not wrong:
            return
        place = wrong[0]
        if isinstance(self._options.ending, AtOffsets):
            raise SparkOptionError(
                f"the option {self._options.ending.option!r} names offset {end[place]} of {place}, "
                f"which is before its start {first[place]}"
            )
        reason = "the log ends before the start"
        view.lose(
            [
                LostRange(place.topic, topic_ids[place.topic], place.partition, end[place], first[place], reason)
                for place in wrong
            ]
        )


class FilteredBatchReader(BatchReader):
    """Reads only what the query's conditions can be true for.

    A class of its own: Spark refuses any `pushFilters` while its setting is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds = bounds_of(filters)
        return filters  # Spark evaluates them all the same


def task_partitions(
    options: ReadOptions, columns: tuple[str, ...], ranges: Sequence[OffsetRange]
) -> list[InputPartition]:
    return [
        TaskPartition(task_of(options, columns, task_ranges)) for task_ranges in plan_tasks(ranges, options.task_sizes)
    ]


@rows_with_brief_errors
def read_partition(partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """Without partitions Spark still runs one task, with None inside a plain partition."""
    if partition is None or (type(partition) is InputPartition and partition.value is None):
        return iter(())
    assert isinstance(partition, TaskPartition)
    settle_heap()
    return read_task(partition.task)

"""`spark.read.format("ottla")`: the driver resolves the offsets once; the tasks read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss, SparkOptionError
from ottla.spark.options.offset_spec import AtOffsets, Offsets
from ottla.spark.options.read_options import ReadOptions
from ottla.spark.source.cluster_view import ClusterView
from ottla.spark.source.offset_ranges import OffsetRange, plan_tasks, ranges_between
from ottla.spark.source.range_reading import ReadTask, read_task
from ottla.spark.worker_heap import settle_heap
from ottla.spark.worker_import import Shipped


class TaskPartition(InputPartition):
    """One Spark task's share."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)
        self.task = task


class BatchReader(Shipped, DataSourceReader):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def shipped(self) -> tuple[ReadOptions, tuple[str, ...]]:
        return self._options, self._columns

    def partitions(self) -> Sequence[InputPartition]:
        with ClusterView(self._options) as view:
            subscribed = view.subscribed()
            places = subscribed.partitions
            first = self._settled(view, places, is_start=True)
            end = self._settled(view, places, is_start=False)
        self._check_order(first, end)
        return task_partitions(self._options, self._columns, ranges_between(first, end, subscribed.topic_ids))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def _settled(self, view: ClusterView, places: list[TopicPartition], *, is_start: bool) -> Offsets:
        spec = self._options.starting if is_start else self._options.ending
        offsets = view.offsets(spec, places, is_start=is_start)
        if isinstance(spec, AtOffsets):
            return view.checked(spec.option, offsets)
        return offsets

    def _check_order(self, first: Offsets, end: Offsets) -> None:
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
        if self._options.fails_on_data_loss:
            raise DataLoss(f"{place} ends at {end[place]}, before the start {first[place]}")


def task_partitions(
    options: ReadOptions, columns: tuple[str, ...], ranges: Sequence[OffsetRange]
) -> list[InputPartition]:
    return [
        TaskPartition(
            ReadTask(
                options.connection,
                task_ranges,
                columns,
                options.fetch_bytes,
                options.fails_on_data_loss,
                options.isolation,
            )
        )
        for task_ranges in plan_tasks(ranges, options.input_partitions_min)
    ]


def read_partition(partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """Without partitions Spark still runs one task, with None inside a plain partition."""
    if partition is None or (type(partition) is InputPartition and partition.value is None):
        return iter(())
    assert isinstance(partition, TaskPartition)
    settle_heap()
    return read_task(partition.task)

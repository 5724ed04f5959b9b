"""`spark.readStream.format("ottla")`: micro-batches of offset ranges.

Offsets, plans and commits run in one long-lived Python process beside the driver; `read` runs in executors, on a
pickled copy without the connection.  Spark's checkpoint holds `{"topic": {"0": next offset}}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss
from ottla.spark.options.offset_spec import AtOffsets, OffsetDict, Offsets, from_dict, to_dict
from ottla.spark.options.read_options import ReadOptions
from ottla.spark.source.batch_reader import read_partition, task_partitions
from ottla.spark.source.cluster_view import ClusterView
from ottla.spark.source.offset_ranges import limit_offsets, ranges_between


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._view: ClusterView | None = None
        # Under Trigger.AvailableNow: where the query ends.
        self._target: Offsets | None = None
        self._latest: Offsets | None = None

    def __getstate__(self) -> tuple[ReadOptions, tuple[str, ...]]:
        return self._options, self._columns

    def __setstate__(self, state: tuple[ReadOptions, tuple[str, ...]]) -> None:
        StreamReader.__init__(self, *state)

    def initialOffset(self) -> OffsetDict:
        view = self._cluster()
        offsets = view.offsets(self._options.starting, view.partitions(), is_start=True)
        if isinstance(self._options.starting, AtOffsets):
            offsets = view.checked(self._options.starting.option, offsets)
        return to_dict(offsets)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask_latest()

    def reportLatestOffset(self) -> OffsetDict | None:
        """The logs' ends in the last plan: the progress report computes the lag from them."""
        return None if self._latest is None else to_dict(self._latest)

    def latestOffset(self, start: OffsetDict, limit: ReadLimit) -> OffsetDict:
        known = from_dict(start)
        latest = self._target if self._target is not None else self._ask_latest()
        self._latest = latest
        gone = sorted(set(known).difference(latest))
        if gone and self._options.fails_on_data_loss:
            raise DataLoss(f"{', '.join(map(str, gone))}: read by the query, and deleted meanwhile")
        first = {place: known[place] for place in latest if place in known}
        new = set(latest).difference(known)
        first |= self._cluster().earliest(new)
        self._check_shrunk(first, latest)
        if isinstance(limit, ReadMaxRows):
            return to_dict(limit_offsets(_restarted(first, latest), latest, limit.max_rows))
        return to_dict(latest)

    def partitions(self, start: OffsetDict, end: OffsetDict) -> Sequence[InputPartition]:
        """Called again with the same offsets after a restart: only partitions that are not in `start` need the
        cluster."""
        known, ends = from_dict(start), from_dict(end)
        first = {place: known[place] for place in ends if place in known}
        self._check_shrunk(first, ends)
        unknown = [place for place in ends if place not in known or known[place] > ends[place]]
        first |= self._cluster().earliest(unknown)
        return task_partitions(self._options, self._columns, ranges_between(first, ends))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def commit(self, end: OffsetDict) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    def _cluster(self) -> ClusterView:
        if self._view is None:
            self._view = ClusterView(self._options)
        return self._view

    def _ask_latest(self) -> Offsets:
        view = self._cluster()
        return view.latest(view.partitions(missing_ok=True))

    def _check_shrunk(self, first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """A log that ends before the offset read so far was truncated, or its topic recreated."""
        shrunk = sorted(place for place in first if end[place] < first[place])
        if shrunk and self._options.fails_on_data_loss:
            place = shrunk[0]
            raise DataLoss(f"{place} was read up to offset {first[place]}, and now it ends at {end[place]}")


def _restarted(first: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """A shrunken log is read from its beginning."""
    return {place: offset if offset <= latest[place] else 0 for place, offset in first.items()}

"""`spark.readStream.format("ottla")`: micro-batches of offset ranges.

Offsets, plans and commits run in one long-lived Python process beside the driver; `read` runs in executors, on a
pickled copy without the connection.  What Spark's checkpoint holds: `stream_offsets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss
from ottla.spark.options.offset_spec import AtOffsets, OffsetDict, Offsets, to_dict
from ottla.spark.options.read_options import ReadOptions, is_subscribed
from ottla.spark.source.batch_reader import read_partition, task_partitions
from ottla.spark.source.cluster_view import ClusterView
from ottla.spark.source.offset_ranges import limit_offsets, ranges_between
from ottla.spark.source.stream_offsets import (
    UNRESOLVED,
    CheckpointDict,
    StreamOffsets,
    from_checkpoint,
    to_checkpoint,
)
from ottla.spark.source.stream_plan import LogsNow, beginnings, first_offsets
from ottla.spark.worker_import import Shipped


class StreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._view: ClusterView | None = None
        # Under Trigger.AvailableNow: where the query ends.
        self._target: LogsNow | None = None
        self._latest: Offsets | None = None

    def shipped(self) -> tuple[ReadOptions, tuple[str, ...]]:
        return self._options, self._columns

    def initialOffset(self) -> CheckpointDict:
        """Spark asks for it again and again while the first batch is not committed, so it must not depend on the
        cluster: `latestOffset` resolves it, once."""
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows_max = self._options.rows_per_trigger_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._logs_now()

    def reportLatestOffset(self) -> OffsetDict | None:
        """The logs' ends in the last plan: the progress report computes the lag from them."""
        return None if self._latest is None else to_dict(self._latest)

    def latestOffset(self, start: CheckpointDict, limit: ReadLimit) -> CheckpointDict:
        known = from_checkpoint(start)
        # Asked before the logs' ends: a log that grows meanwhile does not end before its start.
        resolved = None if known is not None else self._resolved()
        logs = self._target if self._target is not None else self._logs_now()
        self._latest = logs.ends
        if resolved is not None:
            first = {place: resolved[place] for place in logs.ends if place in resolved}
            first |= self._earliest(set(logs.ends).difference(resolved))
            begin = dict(first)
            # A start may be later than every record (by time), or than the target of Trigger.AvailableNow.
            logs = logs.reaching(first)
            self._target = None if self._target is None else logs
        else:
            assert known is not None
            first, begin = self._beginnings(known, logs)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = limit_offsets(first, {place: logs.ends[place] for place in first}, rows_max)
        planned = logs.offsets(ends, begin)
        if known is not None and _is_no_news(known, planned):
            return start  # as it is: Spark compares offsets as text
        return to_checkpoint(planned)

    def partitions(self, start: CheckpointDict, end: CheckpointDict) -> Sequence[InputPartition]:
        """Called again with the same offsets after a restart: the plan is the same, whatever happened to the cluster
        meanwhile, unless an earlier version made it."""
        known, planned = from_checkpoint(start), from_checkpoint(end)
        if planned is None:
            return []
        first, unknown = first_offsets(known, planned)
        if unknown:
            first |= self._beginnings_of_old(known, planned, unknown)
        ranges = ranges_between(first, planned.next_offsets, planned.topic_ids)
        return task_partitions(self._options, self._columns, ranges)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return read_partition(partition)

    def commit(self, end: CheckpointDict) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        if self._view is not None:
            self._view.close()
            self._view = None

    def _cluster(self) -> ClusterView:
        if self._view is None:
            self._view = ClusterView(self._options)
        return self._view

    def _logs_now(self) -> LogsNow:
        view = self._cluster()
        # Ids before ends: of a topic recreated in between the tasks find that it is another one.
        subscribed = view.subscribed(missing_ok=True)
        return LogsNow(subscribed.cluster_id, subscribed.topic_ids, view.latest(subscribed.partitions))

    def _resolved(self) -> Offsets:
        """Where the user wants to start, as offsets."""
        view, spec = self._cluster(), self._options.starting
        offsets = view.offsets(spec, view.partitions(), is_start=True)
        return view.checked(spec.option, offsets) if isinstance(spec, AtOffsets) else offsets

    def _beginnings(self, known: StreamOffsets, logs: LogsNow) -> tuple[Offsets, Offsets]:
        """Where each partition goes on, and of these where the new ones begin.  Raises `DataLoss`."""
        unsubscribed = {place for place in known.next_offsets if not is_subscribed(self._options.subscription, place)}
        found = beginnings(known, logs, unsubscribed)
        begin = self._earliest(found.new)
        found.losses += [
            f"{place} is new, and its records before offset {begin[place]} were deleted before they were read"
            for place in sorted(found.added)
            if begin[place] > 0
        ]
        if found.losses and self._options.fails_on_data_loss:
            raise DataLoss("; ".join(found.losses))
        for place, topic_id in found.gone.items():
            self._cluster().check_gone(place, topic_id)
        return found.first | begin, begin

    def _earliest(self, places: set[TopicPartition]) -> Offsets:
        return self._cluster().earliest(places) if places else {}

    def _beginnings_of_old(
        self, known: StreamOffsets | None, planned: StreamOffsets, places: set[TopicPartition]
    ) -> Offsets:
        """For a batch that was planned by an earlier version, which did not write down where partitions begin."""
        if known is None:
            # The first batch began at or before its end: so "latest", which has moved on since, is its end.
            resolved = self._cluster().offsets(self._options.starting, places, is_start=True)
            return {place: min(offset, planned.next_offsets[place]) for place, offset in resolved.items()}
        shrunk = sorted(places & known.next_offsets.keys())
        if shrunk and self._options.fails_on_data_loss:
            place = shrunk[0]
            read, end = known.next_offsets[place], planned.next_offsets[place]
            raise DataLoss(f"{place} was read up to offset {read}, and now it ends at {end}")
        return self._cluster().earliest(places)


def _is_no_news(known: StreamOffsets, planned: StreamOffsets) -> bool:
    return known.next_offsets == planned.next_offsets and all(
        known.is_same_topic(planned, topic) for topic in planned.topic_ids
    )

"""`spark.readStream.format("ottla")`: micro-batches of offset ranges.

Offsets, plans and commits run in one long-lived Python process beside the driver; `read` runs in executors, on a
pickled copy without the connection.  What Spark's checkpoint holds: `stream_offsets`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.groups.group_types import CommittedOffset
from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.lost_offsets import LostRange
from ottla.model.identifiers import TopicPartition
from ottla.observe.events import fields
from ottla.protocol.schema import ZERO_UUID
from ottla.runtime.clock import Clock, SystemClock
from ottla.spark.errors import SparkUserError, with_brief_errors
from ottla.spark.options.connection import Connection
from ottla.spark.options.offset_spec import AtGroup, AtOffsets, OffsetDict, Offsets, to_dict
from ottla.spark.options.read_options import ReadOptions, TriggerLimits, is_subscribed
from ottla.spark.source.batch_reader import read_partition, task_partitions
from ottla.spark.source.cluster_view import ClusterView
from ottla.spark.source.offset_ranges import is_too_few, limited_ends, ranges_between
from ottla.spark.source.stream_plan import (
    UNRESOLVED,
    Beginnings,
    CheckpointDict,
    LogsNow,
    StreamOffsets,
    beginnings,
    first_offsets,
    from_checkpoint,
    to_checkpoint,
)
from ottla.spark.spark_features import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

log = logging.getLogger(__name__)

# A group whose coordinator does not answer must not hold up the query: one attempt is short, and the next one later.
TIMEOUT_MS: Final = 5_000
PAUSE_MS: Final = 30_000


class GroupRefused(SparkUserError):
    """The group of the option `groupId` does not take this query's offsets."""

    hint = "name a group that nothing else is a member of, or leave groupId out"


class GroupProgress:
    """Commits offsets to a group without members, which shows how far a stream has come.

    The checkpoint decides where the stream continues, never the group.
    """

    def __init__(self, connection: Connection, group_id: str, clock: Clock, admin: GroupAdmin | None = None) -> None:
        limited = replace(connection, call_timeout_ms=min(connection.call_timeout_ms, TIMEOUT_MS))
        self._cluster = Cluster(connection.bootstrap, limited.client_options)
        self._admin = admin or GroupAdmin(self._cluster)
        self._group_id = group_id
        self._committed: Offsets = {}
        self._clock = clock
        self._next_try_ms = clock.monotonic_ms()

    def commit(self, next_offsets: Offsets) -> None:
        """Nothing when they are committed already.  What fails now is done with a batch after `PAUSE_MS`.

        Raises `GroupRefused` for what no later attempt makes right.
        """
        news = {place: offset for place, offset in next_offsets.items() if self._committed.get(place) != offset}
        if not news or self._clock.monotonic_ms() < self._next_try_ms:
            return
        try:
            self._admin.commit(self._group_id, {place: CommittedOffset(offset) for place, offset in news.items()})
        except ClientError as error:
            if not error.is_retriable:
                raise GroupRefused(f"the option 'groupId': {error}") from error
            self._next_try_ms = self._clock.monotonic_ms() + PAUSE_MS
            log.warning("group.commit_postponed", extra=fields(group=self._group_id, error=str(error)))
            return
        self._committed |= news

    def close(self) -> None:
        self._cluster.close()


# More than a batch can have: the engine keeps no limit by rows then, and the reader the other ones.
ROWS_UNLIMITED: Final = (1 << 63) - 1
AVERAGES_AGE_MAX_MS: Final = 60_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._view: ClusterView | None = None
        # Under Trigger.AvailableNow: where the query ends.
        self._target: LogsNow | None = None
        self._latest: Offsets | None = None
        self._clock = SystemClock()
        self._triggered_ms: int | None = None
        self._offset_bytes: Mapping[TopicPartition, float] = {}
        self._offset_bytes_ms = 0
        self._group: GroupProgress | None = None

    def __getstate__(self) -> tuple[ReadOptions, tuple[str, ...]]:
        return self._options, self._columns

    def __setstate__(self, state: tuple[ReadOptions, tuple[str, ...]]) -> None:
        type(self).__init__(self, *state)

    def initialOffset(self) -> CheckpointDict:
        """Spark calls it repeatedly while the first batch is not committed, so it must not depend on the
        cluster: `latestOffset` resolves it, once."""
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The engine knows one limit only: where there is any, it is shown the one by rows, and all are kept."""
        limits = self._options.limits
        if not limits.given:
            return ReadAllAvailable()
        return ReadMaxRows(ROWS_UNLIMITED if limits.rows_max is None else limits.rows_max)

    @with_brief_errors
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._logs_now()

    def reportLatestOffset(self) -> OffsetDict | None:
        """The logs' ends in the last plan: the progress report computes the lag from them."""
        return None if self._latest is None else to_dict(self._latest)

    @with_brief_errors
    def latestOffset(self, start: CheckpointDict, limit: ReadLimit) -> CheckpointDict:
        known = from_checkpoint(start)
        if known is not None:
            self._commit_to_group(known)
        # Requested before the logs' ends: a log that grows in between does not end before its start.
        resolved = None if known is not None else self._resolved()
        logs = self._target if self._target is not None else self._logs_now()
        self._latest = logs.ends
        found = Beginnings()
        if resolved is not None:
            first = {place: resolved[place] for place in logs.ends if place in resolved}
            first |= self._earliest(set(logs.ends).difference(resolved))
            begin = dict(first)
            # A start may be later than every record (by time), or than the target of Trigger.AvailableNow.
            logs = logs.reaching(first)
            self._target = None if self._target is None else logs
        else:
            assert known is not None
            found, begin = self._beginnings(known, logs)
            first = found.first | begin
        latest = {place: logs.ends[place] for place in first}
        limits = self._limits_of(limit)
        is_left = known is not None and self._waits_for_more(first, latest, limits)
        # Spark calls repeatedly in between: a loss is examined and recorded once.
        if found.losses and (not is_left or self._options.fails_on_data_loss):
            self._lose(found)
        if is_left:
            return start
        ends = limited_ends(first, latest, limits, self._averages(first, latest, limits))
        planned = logs.offsets(ends, begin)
        if known is not None and _is_no_news(known, planned):
            return start  # as it is: Spark compares offsets as text
        return to_checkpoint(planned)

    @with_brief_errors
    def partitions(self, start: CheckpointDict, end: CheckpointDict) -> Sequence[InputPartition]:
        """Called again with the same offsets after a restart: the plan is the same, even after changes of the
        cluster, unless an earlier version wrote the checkpoint."""
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

    @with_brief_errors
    def commit(self, end: CheckpointDict) -> None:
        """The offsets are in Spark's checkpoint; a group gets them too, where the user has named one."""
        committed = from_checkpoint(end)
        if committed is not None:
            self._commit_to_group(committed)

    def stop(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None
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
        ends = view.latest(subscribed.partitions)
        is_committed = self._options.isolation is IsolationLevel.READ_COMMITTED
        # Requested after the ends, so not before them.
        log_ends = view.log_ends(subscribed.partitions) if is_committed else ends
        return LogsNow(subscribed.cluster_id, subscribed.topic_ids, ends, log_ends)

    def _resolved(self) -> Offsets:
        """Where the user wants to start, as offsets."""
        view, spec = self._cluster(), self._options.starting
        offsets = view.offsets(spec, view.partitions(), is_start=True)
        return view.checked(spec.option, offsets) if isinstance(spec, AtOffsets | AtGroup) else offsets

    def _limits_of(self, limit: ReadLimit) -> TriggerLimits:
        """Those of the options, unless the engine wants everything (Trigger.Once)."""
        if not isinstance(limit, ReadMaxRows):
            return TriggerLimits()
        if limit.max_rows >= ROWS_UNLIMITED:
            return self._options.limits
        return replace(self._options.limits, rows_max=limit.max_rows)

    def _waits_for_more(self, first: Offsets, latest: Offsets, limits: TriggerLimits) -> bool:
        """Under Trigger.AvailableNow nothing more will come."""
        now_ms = self._clock.monotonic_ms()
        waited_ms = float("inf") if self._triggered_ms is None else now_ms - self._triggered_ms
        if self._target is None and is_too_few(first, latest, limits, waited_ms):
            return True
        self._triggered_ms = now_ms
        return False

    def _averages(self, first: Offsets, latest: Offsets, limits: TriggerLimits) -> Mapping[TopicPartition, float]:
        """Stored bytes for each offset, requested again at intervals: a log's average changes slowly."""
        if limits.bytes_max is None:
            return {}
        now_ms = self._clock.monotonic_ms()
        waiting = {place for place in first if latest[place] > first[place]}
        if waiting - self._offset_bytes.keys() or now_ms - self._offset_bytes_ms > AVERAGES_AGE_MAX_MS:
            self._offset_bytes = self._cluster().offset_bytes(first)
            self._offset_bytes_ms = now_ms
        return self._offset_bytes

    def _commit_to_group(self, done: StreamOffsets) -> None:
        """Spark requests the next offsets when the batch before is in its commit log: so lag shows at once, not only
        when the next batch is planned."""
        if self._options.group_id is None:
            return
        if self._group is None:
            self._group = GroupProgress(self._options.connection, self._options.group_id, self._clock)
        self._group.commit(done.next_offsets)

    def _beginnings(self, known: StreamOffsets, logs: LogsNow) -> tuple[Beginnings, Offsets]:
        """Where each partition continues, and where the new ones start."""
        unsubscribed = {place for place in known.next_offsets if not is_subscribed(self._options.subscription, place)}
        found = beginnings(known, logs, unsubscribed)
        begin = self._earliest(found.new)
        for place in sorted(found.added):
            if begin[place] > 0:
                reason = "the partition is new, and these were deleted before they were read"
                topic_id = logs.topic_ids[place.topic]
                found.losses.append(LostRange(place.topic, topic_id, place.partition, 0, begin[place], reason))
        return found, begin

    def _lose(self, found: Beginnings) -> None:
        """Raises `ReadTimedOut` unless the losses are proven, and then `DataLoss`, or writes them down."""
        gone: dict[tuple[str, UUID], list[TopicPartition]] = {}
        for place, topic_id in found.gone.items():
            gone.setdefault((place.topic, topic_id), []).append(place)
        for (_, topic_id), places in gone.items():
            self._cluster().check_gone(places, topic_id)
        for place, read in found.cut.items():
            self._cluster().check_cut(place, read)
        self._cluster().lose(found.losses)

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
        losses = []
        for place in sorted(places & known.next_offsets.keys()):
            read, end = known.next_offsets[place], planned.next_offsets[place]
            reason = f"it was read up to offset {read}, and now it ends at {end}"
            losses.append(LostRange(place.topic, ZERO_UUID, place.partition, end, read, reason))
        if losses:
            self._cluster().lose(losses)
        return self._cluster().earliest(places)


class StreamReaderWithoutLimits(StreamReader):
    """For a Spark that neither limits a micro-batch nor says where the one before it ended.

    That is the end of the last one that was planned here.  After a restart Spark first plans an empty range at the end
    of the last batch in its offset log, and runs that batch again where it was not committed.  Both are calls of
    `partitions`, before the next of `latestOffset`.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._planned_end: CheckpointDict | None = None

    def latestOffset(self) -> CheckpointDict:  # type: ignore[override]
        start = self.initialOffset() if self._planned_end is None else self._planned_end
        self._planned_end = super().latestOffset(start, ReadAllAvailable())
        return self._planned_end

    def partitions(self, start: CheckpointDict, end: CheckpointDict) -> Sequence[InputPartition]:
        self._planned_end = end
        return super().partitions(start, end)


def _is_no_news(known: StreamOffsets, planned: StreamOffsets) -> bool:
    return known.next_offsets == planned.next_offsets and all(
        known.is_same_topic(planned, topic) for topic in planned.topic_ids
    )

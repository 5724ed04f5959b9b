"""One partition's log: appends, rolls, reads, flushes, retention, truncation, compaction's swap, failures.

`Log` owns everything that changes: no other module assigns one of its fields or uses what is private.
Rules that need no log are in `retention`, `leader_epochs` and `reads`, over plain values.

All calls come from the event loop's thread and none of them waits for a flush; those that sync are coroutines, whose
`Offload` does it elsewhere.  Invariants, with every `*_end` exclusive: log_start_offset <= log_end_offset,
flushed_end <= log_end_offset, stable_end <= log_end_offset; the ends never go back except by a truncation or a reset;
the log end moves right after the data was written, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from ottla.observe.events import fields
from ottla.observe.transition_history import TransitionHistory
from ottla.records.end_marker import EndMarker, build_end_marker, stored_end_marker
from ottla.records.header import (
    BASE_OFFSET_TO_EPOCH,
    CONTROL_BIT,
    HEADER,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from ottla.runtime.disk import Disk, File, FileRun, replace_file
from ottla.runtime.mutex import Mutex
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.storage.checkpoints import EpochStart
from ottla.storage.compaction.compacted_mark import allow_gaps
from ottla.storage.errors import (
    BatchTooLarge,
    CorruptLog,
    DirectoryOffline,
    LogBeingCut,
    LogOffline,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RunDoesNotFollow,
    StorageError,
    SwapRefused,
    lacks_room,
    shortage_of,
)
from ottla.storage.log import reads, retention, time_search
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.leader_run import check_run
from ottla.storage.log.log_aborted import LogAborted
from ottla.storage.log.reads import ReadPlaces
from ottla.storage.log_config import FOREVER, LogConfig
from ottla.storage.log_files import DISTRUSTED_FILE, UNFLUSHED_FILE
from ottla.storage.producers.log_transactions import LogTransactions, VerificationGuard
from ottla.storage.producers.producer_snapshot import (
    remove_snapshots,
    snapshot_file_name,
    sync_snapshot,
    write_snapshot,
)
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.replay import ensure_snapshot
from ottla.storage.producers.truncated_producers import truncated_producers
from ottla.storage.room import Room
from ottla.storage.segment.indexes import IndexCache, OffsetIndex, TimeIndex, TimestampOffset
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList

_log = logging.getLogger(__name__)

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_BASE_OFFSET: Final = Struct(">q")


class Appended(NamedTuple):
    """What was appended to a log since it was opened, removed records included."""

    records_count: int
    size_bytes: int


class AppendedCount:
    """The sums up to an earlier end of the log; growth since then is added when the sums are read, not by appends."""

    __slots__ = ("_before", "_from_offset", "_from_position")

    def __init__(self, end_offset: int, position: int) -> None:
        """The log ends at `end_offset`, and its active segment at `position`."""
        self._before = Appended(0, 0)
        self._from_offset = end_offset
        self._from_position = position

    def at(self, end_offset: int, position: int) -> Appended:
        """The sums for this end of the log, in the segment that it continued in last."""
        return Appended(
            self._before.records_count + end_offset - self._from_offset,
            self._before.size_bytes + position - self._from_position,
        )

    def go_on(self, before: Appended, end_offset: int, position: int) -> None:
        """The log continues at another end, in any segment; `before` are the sums up to its former end."""
        self._before = before
        self._from_offset = end_offset
        self._from_position = position


class LogParts(NamedTuple):
    """What recovery found in a partition's directory."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    flushed_end: int
    producers: ProducerStates
    transactions: LogTransactions
    epochs: LeaderEpochs
    # The log end for which indexes and snapshot on disk are whole; -1 when they are not.
    caches_end: int
    # The topic's settings; `was_compacted` if the log's directory has the mark of a clean.
    config: LogConfig


class _ClosedForCut(Room):
    """The room of a log that is being cut: nothing is appended before the cut is durable."""

    __slots__ = ()

    def refusal(self, topic_partition: TopicPartition) -> LogBeingCut:
        return LogBeingCut(f"{topic_partition} is being cut to where it agrees with its leader")


_CLOSED: Final = _ClosedForCut()
_CLOSED.close()


class FlushMarks(Protocol):
    """The scheduler of flushes, as a log uses it."""

    def mark_dirty(self, log: Log) -> None:
        """The log was clean and took a batch."""
        ...

    def mark_due(self, log: Log) -> None:
        """The log must be flushed by the next plan."""
        ...


class CutRun(NamedTuple):
    """A run of whole batches in one file that a cut removes; `base_offset` is not above its first one's."""

    path: str
    position: int
    size_bytes: int
    base_offset: int


class LogHost(Protocol):
    """The log directory, as a log uses it."""

    @property
    def scheduler(self) -> FlushMarks: ...

    @property
    def batch_opening(self) -> Mutex:
        """Is held by the one search by time that has a batch open, which may take 32 MiB."""
        ...

    def now_ms(self) -> int: ...

    def room_of(self, topic_partition: TopicPartition) -> Room:
        """Whether this log takes records, as far as room decides it."""
        ...

    def on_no_room(self) -> None:
        """A write failed for want of room."""
        ...

    def log_start_moved(self, log: Log) -> None:
        """Checkpoint `log_start_offset` later, then call `Log.release_removed_segments`."""
        ...

    def log_damaged(self, log: Log, damage: CorruptLog) -> None:
        """A read met damage, for the first time since the log was opened."""
        ...

    async def finish_swap_in_steps(self, offload: Offload) -> None:
        """Finish the swap of cleaned segments that is under way, before this returns."""
        ...

    async def keep_cut(self, log: Log, end_offset: int, runs: list[CutRun], offload: Offload) -> None:
        """The log will be cut to `end_offset`: copy the lost records, while there is room.  Failures are logged."""
        ...

    async def lower_records(self, log: Log, end_offset: int, offload: Offload) -> None:
        """The log will end at `end_offset`: lower its recorded ends, durably, and keep them there until `end_cut`.

        Raises `OSError`.
        """
        ...

    async def record_begin(self, log: Log, base_offset: int, log_start_offset: int, offload: Offload) -> None:
        """The empty log will start at `base_offset` and be readable from `log_start_offset` on: record both, durably.

        Raises `OSError`.
        """
        ...

    def end_cut(self, log: Log) -> None:
        """The recorded ends may follow the log again."""
        ...

    async def sync_files(self, offload: Offload) -> None:
        """Make every file of the directory durable, and the names.  Raises `OSError`."""
        ...

    def directory_failed(self, error: OSError) -> None:
        """Take all logs of the directory offline."""
        ...


class LogFlush(NamedTuple):
    """One log's part of a flush: where the log ended when the plan was made, and what must be synced for that."""

    log: Log
    end_offset: int
    segment: Segment
    position: int
    # The active segment's.
    file: File
    # Whether other files or names in the log's directory changed, too: a sync of the file system covers them.
    has_other_files: bool
    truncations_count: int


class Log:
    """One partition's log; the module's docstring says what holds between its offsets."""

    __slots__ = (
        "_active",
        "_appended_count",
        "_appended_offset",
        "_appended_position",
        "_cache",
        "_caches_end",
        "_committed_end",
        "_disk",
        "_epoch_is_new",
        "_epochs",
        "_flush_at_offset",
        "_has_other_unsynced",
        "_has_unflushed_mark",
        "_host",
        "_is_damage_reported",
        "_is_dirty",
        "_is_os_policy",
        "_on_stable",
        "_on_truncated",
        "_open_transactions",
        "_places",
        "_room",
        "_scheduler",
        "_segments",
        "aborted",
        "config",
        "failure",
        "flush_ms_max",
        "flushed_end",
        "history",
        "is_being_cut",
        "is_deleted",
        "is_distrusted",
        "is_swapping",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "path",
        "producers",
        "stable_end",
        "topic_id",
        "topic_partition",
        "transactions",
        "truncations_count",
    )

    def __init__(
        self,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        topic_id: UUID,
        parts: LogParts,
        host: LogHost,
        cache: IndexCache,
    ) -> None:
        self._disk = disk
        self._host = host
        self._scheduler = host.scheduler
        self._room = host.room_of(topic_partition)
        self._cache = cache
        self._caches_end = parts.caches_end
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._segments = SegmentList(parts.segments)
        self._active = self._segments.active
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.flushed_end = parts.flushed_end
        self.stable_end = parts.flushed_end
        self.producers = parts.producers
        self.transactions = parts.transactions
        self._open_transactions = self.transactions.open
        self.aborted: Final = LogAborted(self, self._segments, disk, host)
        self._epochs = parts.epochs
        latest = parts.epochs.latest_epoch
        self.leader_epoch = latest if latest is not None else NO_LEADER_EPOCH
        # Whether the next append is the first one under `leader_epoch`.
        self._epoch_is_new = False
        # Whether batches were appended since the last flush was planned.
        self._is_dirty = False
        self.is_deleted = False
        # Whether cleaned segments are replacing others: until that is done no segment may be removed.
        self.is_swapping = False
        # Whether it is being truncated or reset: it takes nothing until that is durable.
        self.is_being_cut = False
        # What was known of offsets before a truncation is not valid after it.
        self.truncations_count = 0
        self.failure: StorageError | None = None
        # Whether it was found to be damaged: it is not used where another replica is; see `distrust`.
        self.is_distrusted = False
        self._is_damage_reported = False
        self._on_stable: Callable[[], None] | None = None
        self._on_truncated: Callable[[], None] | None = None
        self._committed_end: Callable[[], int] | None = None
        # Whether a file other than the active segment's, or a name, changed since the last flush was planned.
        self._has_other_unsynced = False
        # The base offset of the last batch and its position in the active segment; -1 when not known.
        self._appended_offset = NO_OFFSET
        self._appended_position = 0
        self._appended_count = AppendedCount(self.log_end_offset, self._active.size_bytes)
        self._places = ReadPlaces(self._active, self._active.size_bytes)
        self._flush_at_offset = FOREVER
        # Whether its mark of policy `os` was written by this process.
        self._has_unflushed_mark = False
        self._set_config(parts.config)
        self.history = TransitionHistory(str(topic_partition))
        self.note("opened", log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)

    def watch(
        self,
        *,
        on_stable: Callable[[], None],
        on_truncated: Callable[[], None] | None = None,
        committed_end: Callable[[], int] | None = None,
    ) -> None:
        """Set the log's one observer.

        `on_stable` is called after each move of `stable_end`: after a flush was recorded, or under flush policy `os`
        inside of `append`.  `on_truncated` is called after each truncation or reset, also when it
        failed halfway and took the log offline: all ends are then at or below the new `log_end_offset`, which a reset
        may raise.
        `committed_end`: the exclusive end of what no truncation can take back; None when all that is stable stays.
        """
        self._on_stable = on_stable
        self._on_truncated = on_truncated
        self._committed_end = committed_end

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first, never empty; the last one is the active segment."""
        return tuple(self._segments)

    @property
    def epoch_starts(self) -> tuple[EpochStart, ...]:
        """The leader epochs that have batches in this log, oldest first."""
        return self._epochs.entries

    @property
    def decided_end(self) -> int:
        """Exclusive limit for compaction: `removable_end`, what is flushed, and the outcome of every transaction."""
        removable_end = min(self.removable_end, self.flushed_end)
        return self.transactions.decided_end(removable_end, self.flushed_end)

    @property
    def removable_end(self) -> int:
        """Exclusive limit for retention.

        Records at or above it may still be truncated, so they are not removed, and supersede no older record of their
        key.
        """
        committed_end = self._committed_end
        return self.stable_end if committed_end is None else min(self.stable_end, committed_end())

    @property
    def active_base_offset(self) -> int:
        """The base offset of the active segment: batches below it are in closed segments."""
        return self._active.base_offset

    @property
    def size_bytes(self) -> int:
        """All segments' `.log` files."""
        return self._segments.size_bytes

    @property
    def appended(self) -> Appended:
        """The sums over all appends since the log was opened."""
        return self._appended_count.at(self.log_end_offset, self._active.size_bytes)

    def size_bytes_from(self, offset: int) -> int:
        """The bytes of the batches from the one that holds `offset` on.  Raises `CorruptLog` or `OSError`."""
        if offset >= self.log_end_offset:
            return 0
        first, position = self._place_of(max(offset, self.log_start_offset))
        later = sum(segment.size_bytes for segment in self._segments if segment.base_offset > first.base_offset)
        return first.size_bytes - position + later

    def append(
        self,
        batch: memoryview,
        header: tuple[int, ...],
        now_ms: int,
        guard: VerificationGuard | None = None,
        has_sequence: bool = True,
        marker: EndMarker | None = None,
    ) -> int:
        """Append ONE whole batch (v2, checked by the caller, in a writable buffer) and return its base offset.

        Base offset and leader epoch are stamped in place.  A duplicate of an idempotent producer appends nothing
        and returns the original base offset, so the caller always waits for `base + delta + 1 <= stable_end`.
        `guard` and `has_sequence` of a transactional batch: see `LogTransactions.check`.  `marker`: the batch is this
        one, and `append_marker` has checked it.
        Raises `AppendRefused` or `StorageError`; the log is then as it was.
        """
        if self.failure is not None:
            raise self.failure
        last_offset_delta = header[6]
        producer_id = header[9]
        if producer_id >= 0:
            first_sequence = header[11]
            last_sequence = (first_sequence + last_offset_delta) & _SEQUENCE_MASK
            is_transactional = header[5] & TRANSACTIONAL_BIT
            try:
                if is_transactional or self._open_transactions:
                    original = None
                    if marker is None:
                        original = self.transactions.check(BatchHeader._make(header), guard, has_sequence=has_sequence)
                else:
                    original = self.producers.check(producer_id, header[10], first_sequence, last_sequence)
            except OutOfOrderSequence as gap:
                if self._room.is_closed:
                    # What it should follow was refused as well.
                    raise self._room.refusal(self.topic_partition) from gap
                raise
            if original is not None:
                return original
        if self._room.is_closed:
            raise self._room.refusal(self.topic_partition)
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        size_bytes = len(batch)
        max_timestamp_ms = header[8]
        segment = self._active
        position = segment.size_bytes
        if (
            position + size_bytes > segment.roll_at_bytes
            or max_timestamp_ms > segment.roll_at_timestamp_ms
            or last_offset > segment.last_offset_max
            or now_ms > segment.roll_at_now_ms
        ):
            segment = self._make_room(size_bytes, now_ms)
            position = segment.size_bytes
        BASE_OFFSET_TO_EPOCH.pack_into(batch, 0, base_offset, header[1], self.leader_epoch)
        if self._epoch_is_new:
            self._write_epochs(EpochStart(self.leader_epoch, base_offset))
        try:
            segment.append(batch, size_bytes, last_offset, max_timestamp_ms)
        except OSError as error:
            raise self._undo_append(segment, error) from error
        self._appended_offset = base_offset
        self._appended_position = position
        self.log_end_offset = end_offset = last_offset + 1
        if producer_id >= 0:
            if is_transactional:
                self._replay(BatchHeader._make(header)._replace(base_offset=base_offset), marker, now_ms)
            else:
                self.producers.update(
                    producer_id, header[10], first_sequence, last_sequence, base_offset, last_offset_delta, now_ms
                )
        if not self._is_dirty:
            self._is_dirty = True
            self._scheduler.mark_dirty(self)
        if end_offset >= self._flush_at_offset:
            self._flush_at_offset = FOREVER
            self._scheduler.mark_due(self)
        if self._is_os_policy:
            self.stable_end = end_offset
            if self._on_stable is not None:
                self._on_stable()
        return base_offset

    def append_marker(
        self, marker: EndMarker, producer_id: int, producer_epoch: int, now_ms: int, *, advances_epoch: bool
    ) -> bool:
        """Append the marker that ends a producer's transaction; False when it repeats one that is in the log.

        See `LogTransactions.check_marker`, and `append` for what is raised.
        """
        if self.failure is not None:
            raise self.failure
        transactions, coordinator_epoch = self.transactions, marker.coordinator_epoch
        if not transactions.check_marker(producer_id, producer_epoch, coordinator_epoch, advances_epoch=advances_epoch):
            return False
        batch = build_end_marker(marker, producer_id, producer_epoch, now_ms)
        self.append(memoryview(batch), HEADER.unpack_from(batch), now_ms, marker=marker)
        return True

    def _replay(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> None:
        """A batch of a producer is in the active segment."""
        aborted = self.transactions.replay(header, marker, now_ms)
        if aborted is not None:
            self.aborted.add(aborted)

    def expect_beginnings(self, expected: bool) -> None:
        """Whether `append` refuses a producer that the log does not know and that does not start with sequence 0.

        Holds until the log is truncated or reset, which is done only to a follower's.
        """
        self.producers.expect_beginnings(expected)

    def _make_room(self, size_bytes: int, now_ms: int) -> Segment:
        if size_bytes > self.config.segment_bytes:
            raise BatchTooLarge(
                f"a batch of {size_bytes} bytes does not fit into a segment of {self.config.segment_bytes} bytes",
                hint="raise segment.bytes or send smaller batches",
            )
        if self._active.size_bytes > 0:
            self.roll(now_ms)
        return self._active

    def append_run(self, run: memoryview, now_ms: int, *, may_have_gaps: bool = False) -> int:
        """Append batches as a leader sent them, offsets and epochs included, and return the new log end.

        A batch at the end of `run` that the answer's size limit cut is left out.  The first one must start at the log
        end, and each following one where the one before ends: above that only where records may have been compacted
        away, by this log's own settings or by the caller's `may_have_gaps`.  One write takes all batches of a
        segment, and except under flush policy `os` the log is due to be flushed at once: a follower reports no offset
        before.

        Raises `AppendRefused` (`CorruptRun`, `RunDoesNotFollow`): the log is as it was.  Or `StorageError`: it ends
        after the last segment's part that was written, as the run itself would have ended there.
        """
        if self.failure is not None:
            raise self.failure
        if not len(run):
            return self.log_end_offset
        if self._room.is_closed:
            raise self._room.refusal(self.topic_partition)
        former_end = self.log_end_offset
        may_have_gaps = may_have_gaps or self.config.may_have_gaps
        is_empty = self._is_empty()
        found = check_run(run, former_end, self.last_epoch(), may_have_gaps=may_have_gaps, may_begin_below=is_empty)
        if found.base_offset < former_end:
            # The leader's log start is inside of a batch: the log holds all of it, and shows what the leader shows.
            with self._closed_for_cut():
                run_inline(self._begin_at(found.base_offset, former_end, INLINE))
        try:
            if found.has_gaps and not self.config.was_compacted:
                self._allow_gaps()
            if found.epoch_starts:
                self._write_epochs(*found.epoch_starts)
            position = 0
            while position < found.size_bytes:
                position = self._append_part(run, position, found.size_bytes, now_ms, found.has_producers)
        finally:
            self._take_back_epochs()
            if self.log_end_offset > former_end:
                if self.log_start_offset < former_end and is_empty:
                    self.log_start_offset = former_end
                    self._host.log_start_moved(self)
                self._follower_appended()
        assert self.log_end_offset == found.end_offset
        return found.end_offset

    def begins_below(self, run: memoryview) -> bool:
        """Whether `append_run` would first have to start this empty log below its end, which syncs."""
        return (
            len(run) >= LOG_OVERHEAD_BYTES
            and self._is_empty()
            and _BASE_OFFSET.unpack_from(run)[0] < self.log_end_offset
        )

    async def begin_with_run(
        self, run: memoryview, now_ms: int, offload: Offload, is_wanted: Callable[[], bool] = lambda: True
    ) -> bool:
        """`append_run` of a run that `begins_below`; `offload` syncs.  Nothing is done when it is not wanted any more.

        Raises as `append_run`.
        """
        former_end = self.log_end_offset
        base_offset = _BASE_OFFSET.unpack_from(run)[0]
        check_run(run, former_end, self.last_epoch(), may_have_gaps=True, may_begin_below=True)
        with self._closed_for_cut():
            if not await self._begin_at(base_offset, former_end, offload, is_wanted):
                return False
        self.append_run(run, now_ms)
        if self.log_end_offset > former_end:
            # The log holds all of the batch, and shows what the leader shows.
            self.log_start_offset = former_end
            self._host.log_start_moved(self)
        return True

    def _append_part(self, run: memoryview, start: int, end: int, now_ms: int, has_producers: bool) -> int:
        """Append the batches of run[start:end] that go into the active segment; returns the end of the last one.

        None of them does when the segment must roll first: then it does that.  The limits are those of `append`, but
        for a batch larger than a segment: its leader accepted it, so it gets its own segment.
        """
        segment = self._active
        mark = segment.mark()
        position = start
        base_offset = last_offset = batch_position = NO_OFFSET
        unpack_from = HEADER.unpack_from
        while position < end:
            head = unpack_from(run, position)
            size_bytes = LOG_OVERHEAD_BYTES + head[1]
            batch_last_offset = head[0] + head[6]
            at = segment.size_bytes
            if at and (
                at + size_bytes > segment.roll_at_bytes
                or head[8] > segment.roll_at_timestamp_ms
                or batch_last_offset > segment.last_offset_max
                or now_ms > segment.roll_at_now_ms
            ):
                break
            if batch_last_offset > segment.last_offset_max:
                raise RunDoesNotFollow(
                    f"the leader sent a batch that ends at offset {batch_last_offset}, too far above the end of "
                    f"{self.topic_partition} at {self.log_end_offset}: a segment has no more than 2^31 offsets",
                    hint="compaction left a gap that wide: this replica follows again when the leader starts above it",
                )
            segment.account(size_bytes, batch_last_offset, head[8])
            base_offset, last_offset, batch_position = head[0], batch_last_offset, at
            position += size_bytes
        if position == start:
            self.roll(now_ms)
            return start
        try:
            segment.write(mark.size_bytes, run[start:position])
        except OSError as error:
            segment.take_back(mark)
            raise self._undo_append(segment, error) from error
        self._appended_offset = base_offset
        self._appended_position = batch_position
        self.log_end_offset = last_offset + 1
        if has_producers:
            self._remember_producers(run, start, position, now_ms)
        return position

    def _remember_producers(self, run: memoryview, start: int, end: int, now_ms: int) -> None:
        """What `append` does for each batch of an idempotent producer; the leader has checked their sequences."""
        while start < end:
            head = HEADER.unpack_from(run, start)
            batch_end = start + LOG_OVERHEAD_BYTES + head[1]
            if head[9] >= 0:
                marker = stored_end_marker(run[start:batch_end]) if head[5] & CONTROL_BIT else None
                self._replay(BatchHeader._make(head), marker, now_ms)
            start = batch_end

    def _allow_gaps(self) -> None:
        """Before the first gap is written: no later opening, under any settings, takes it for damage."""
        try:
            allow_gaps(self._disk, self.path)
        except OSError as error:
            raise self._write_failed(error) from error
        # The flush that syncs the gap syncs the mark, too.
        self._has_other_unsynced = True
        self.update_config(replace(self.config, was_compacted=True))
        self.note("gaps_allowed", log_end_offset=self.log_end_offset)

    def _follower_appended(self) -> None:
        end_offset = self.log_end_offset
        latest = self._epochs.latest_epoch
        if latest is not None and latest > self.leader_epoch:
            self.leader_epoch = latest
        if not self._is_os_policy:
            self._is_dirty = True
            self._scheduler.mark_due(self)
            return
        if not self._is_dirty:
            self._is_dirty = True
            self._scheduler.mark_dirty(self)
        if end_offset >= self._flush_at_offset:
            self._flush_at_offset = FOREVER
            self._scheduler.mark_due(self)
        self.stable_end = end_offset
        if self._on_stable is not None:
            self._on_stable()

    def start_epoch(self, epoch: int) -> None:
        """Stamp `epoch` into later appends; the first of them writes its line to the epochs' checkpoint."""
        assert epoch >= self.leader_epoch, "a leader epoch never goes back"
        self.leader_epoch = epoch
        self._epoch_is_new = self._has_new_epoch()
        self.note("led", leader_epoch=epoch, log_end_offset=self.log_end_offset)

    def _write_epochs(self, *starts: EpochStart) -> None:
        """Write epochs' lines before their first batches; the flush that syncs the batches syncs the lines too."""
        try:
            self._epochs.assign(*starts)
        except OSError as error:
            self._take_back_epochs()
            raise self._write_failed(error) from error
        self._has_other_unsynced = True
        self._epoch_is_new = self._has_new_epoch()

    def _take_back_epochs(self) -> None:
        """Forget the epochs whose first batch was not appended after all: the last epoch is that of the last record."""
        self._epochs.take_back(self.log_end_offset)
        self._epoch_is_new = self._has_new_epoch()

    def _has_new_epoch(self) -> bool:
        """Whether the present epoch has no batch in the log."""
        latest = self._epochs.latest_epoch
        return self.leader_epoch >= 0 and (latest is None or self.leader_epoch > latest)

    def last_epoch(self) -> int:
        """The leader epoch of the last record, -1 when the log never had one.  Later epochs wrote nothing here."""
        latest = self._epochs.latest_epoch
        return NO_LEADER_EPOCH if latest is None else latest

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above `epoch`, its end offset); Kafka's rules, see `LeaderEpochs`.

        The epoch that was started last is known, also before its first append: it starts and ends at the log end.
        """
        if epoch == self.leader_epoch and epoch >= 0:
            # Nearly every fetch requests this one.
            return epoch, self.log_end_offset
        return self._epochs.end_offset_for(epoch, self.log_end_offset, self.leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was appended, -1 when it is not known."""
        return self._epochs.epoch_of(offset)

    def roll(self, now_ms: int) -> None:
        """Close the active segment and open the next one at the log end; nothing happens when it is empty.

        The old file and the directory's new entry go into the next flush, so nothing in the new file is stable before
        its name is durable.  Raises `StorageError`; the log is then as it was.
        """
        old = self._active
        if old.size_bytes == 0:
            return
        assert old.file is not None
        new = self._new_segment(self.log_end_offset, now_ms)
        try:
            write_snapshot(self._disk, self.path, self.log_end_offset, self.producers)
            old.write_indexes()
            # Last: when an empty next file exists the old segment must not grow any more.
            new.open(create=True)
        except OSError as error:
            raise self._write_failed(error) from error
        self._has_other_unsynced = True
        new.become_active(OffsetIndex(), TimeIndex())
        old.become_closed()
        self._appended_count.go_on(self.appended, self.log_end_offset, 0)
        self._segments.append(new)
        self._active = new
        self._appended_offset = NO_OFFSET
        self.history.add(now_ms, "rolled", base_offset=new.base_offset)
        self._scheduler.mark_due(self)

    def _new_segment(self, base_offset: int, created_ms: int, size_bytes: int = 0) -> Segment:
        return Segment(self._disk, self.path, base_offset, self.config, self._cache, created_ms, size_bytes)

    def begin_flush(self) -> LogFlush:
        """What must be synced for the log to be durable up to its present end."""
        active = self._active
        assert active.file is not None
        has_other_files, self._has_other_unsynced = self._has_other_unsynced, False
        self._is_dirty = False
        self._flush_at_offset = self.log_end_offset + self.config.flush_messages_max
        return LogFlush(
            self,
            self.log_end_offset,
            active,
            active.size_bytes,
            active.file,
            has_other_files,
            self.truncations_count,
        )

    def flush_soon(self) -> None:
        """Records that are not stable wait for no age or count any more."""
        if self.stable_end < self.log_end_offset and self.failure is None:
            self._scheduler.mark_due(self)

    def end_flush(self, flush: LogFlush) -> None:
        """Everything in `flush` was synced: move the flushed end, and unless the policy is `os` the stable end.

        The observer is called by `announce_stable`, after the directory recorded the flushed end.
        """
        if flush.truncations_count != self.truncations_count:
            # What was flushed was cut meanwhile, and other batches may be at its offsets now: the next flush counts.
            return
        end_offset = flush.end_offset
        assert end_offset <= self.log_end_offset
        if end_offset > self.flushed_end:
            self.flushed_end = end_offset
            self.transactions.flushed(end_offset)
        if not self._is_os_policy and end_offset > self.stable_end:
            self._places.move_stable(self.stable_end, flush.segment, flush.position)
            self.stable_end = end_offset

    def announce_stable(self) -> None:
        """Call the observer after a flush (under policy `os` the append has called it already)."""
        if not self._is_os_policy and self._on_stable is not None and not self.is_deleted:
            self._on_stable()

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings.  The stable end never goes back: leaving policy `os` it waits for the flushed end.

        Raises `OSError` when policy `os` cannot be noted; the former settings hold then.
        """
        if config.flush_policy == "os" and not self._is_os_policy:
            # Before anything is acknowledged under it.
            self._mark_unflushed()
        if self.config.was_compacted:
            config = replace(config, was_compacted=True)
        self._set_config(config)
        self._active.configure(config)
        if self.stable_end == self.log_end_offset:
            self._places.set_stable(self._active, self._active.size_bytes)
        if self._is_os_policy and self.stable_end < self.log_end_offset:
            self.stable_end = self.log_end_offset
            if self._on_stable is not None:
                self._on_stable()
        if self.flushed_end < self.log_end_offset:
            self._scheduler.mark_due(self)

    async def prepare_config(self, config: LogConfig, offload: Offload) -> None:
        """Make durable what `update_config` requires; call it before.  Raises `OSError`."""
        if config.flush_policy == "os" and not self._is_os_policy:
            await offload(self._mark_unflushed)

    def _mark_unflushed(self) -> None:
        """Note, durably, that batches may be acknowledged before they are flushed."""
        if not self._has_unflushed_mark:
            replace_file(self._disk, f"{self.path}/{UNFLUSHED_FILE}", b"")
            self._has_unflushed_mark = True

    def _set_config(self, config: LogConfig) -> None:
        self.config = config
        self._is_os_policy = config.flush_policy == "os"
        self.flush_ms_max = config.flush_ms_max
        self._flush_at_offset = self.flushed_end + config.flush_messages_max

    def read(
        self, start_offset: int, limit_offset: int, size_bytes_max: int, *, whole_first_batch: bool
    ) -> FileRun | None:
        """Batches from the one that holds `start_offset`, all below `limit_offset`, in one segment's file.

        At most `size_bytes_max` bytes, which may cut the last batch as Apache Kafka does; the first one is whole
        if `whole_first_batch`, else None is returned when it does not fit.  None means that there is nothing.
        Raises `OffsetOutOfRange`, `CorruptLog`, and `OSError` when a closed segment cannot be opened or read.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= start_offset <= log_end_offset:
            raise OffsetOutOfRange(start_offset, self.log_start_offset, log_end_offset)
        if self.failure is not None and limit_offset > self.flushed_end:
            # What was written but not flushed may be lost already (a failed sync drops pages): never show it.
            limit_offset = self.flushed_end
        if start_offset >= limit_offset:
            return None
        places = self._places
        if start_offset == self._appended_offset:
            segment, position = self._active, self._appended_position
        else:
            place = places.find(start_offset)
            segment, position = self._place_to_read(start_offset) if place is None else place
        if limit_offset >= log_end_offset:
            limit_offset = log_end_offset
            limit_segment = self._active
            limit_position = limit_segment.size_bytes
        elif limit_offset == self.stable_end:
            limit_segment, limit_position = places.stable_segment, places.stable_position
        else:
            try:
                limit_segment, limit_position = self._place_to_read(limit_offset)
            except CorruptLog as damage:
                # The whole batches before the damage are read; a reader that continues there gets the error.
                return reads.run_before(
                    self._segments, segment, position, damage, start_offset, size_bytes_max, whole_first_batch
                )
        run = reads.run_between(
            self._segments,
            segment,
            position,
            limit_segment,
            limit_position,
            start_offset,
            size_bytes_max,
            whole_first_batch,
        )
        if run is not None and run.file is limit_segment.file and run.position + run.length_bytes == limit_position:
            # This reader has everything: it will continue here, and so will others.
            places.remember(limit_offset, limit_segment, limit_position)
        return run

    def _place_to_read(self, offset: int) -> tuple[Segment, int]:
        try:
            return self._place_of(offset)
        except CorruptLog as damage:
            self._report_damage(damage)
            raise

    def _report_damage(self, damage: CorruptLog) -> None:
        if not self._is_damage_reported:
            self._is_damage_reported = True
            self.note("damaged", error=damage)
            self._host.log_damaged(self, damage)

    def _place_of(self, offset: int) -> tuple[Segment, int]:
        return reads.place_of(self._segments, offset, self.log_end_offset, self.config.may_have_gaps)

    async def offset_for_timestamp(
        self, timestamp_ms: int, limit_offset: int, offload: Offload
    ) -> TimestampOffset | None:
        """The first record at or after a time, below `limit_offset`.  Raises `CorruptLog` or `OSError`."""
        return await self._search_by_time(
            partial(time_search.offset_for_timestamp, timestamp_ms=timestamp_ms, limit_offset=limit_offset), offload
        )

    async def offset_of_max_timestamp(self, limit_offset: int, offload: Offload) -> TimestampOffset | None:
        """The first record with the greatest timestamp, below `limit_offset`.  Raises `CorruptLog` or `OSError`."""
        return await self._search_by_time(
            partial(time_search.offset_of_max_timestamp, limit_offset=limit_offset), offload
        )

    async def _search_by_time(self, find: time_search.Find, offload: Offload) -> TimestampOffset | None:
        opening = self._host.batch_opening
        return await time_search.search(self._segments, lambda: self.log_start_offset, opening, offload, find)

    def delete_records_before(self, offset: int) -> None:
        """DeleteRecords: `log_start_offset` moves up to `offset`, at most to the stable end."""
        if offset > self.stable_end or offset < 0:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.stable_end)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._host.log_start_moved(self)
        self.note("records_deleted", log_start_offset=self.log_start_offset)

    def delete_old_segments(self, now_ms: int, limit_offset: int | None = None) -> int:
        """Remove the oldest segments that retention by time, size and log start drops; returns how many.

        Only segments wholly below `limit_offset` (`removable_end` unless given) are removed.  Their files are renamed
        after the new log start is checkpointed: by `LogDirectory.checkpoint`.
        """
        if self.failure is not None or self.is_swapping or self.is_being_cut:
            return 0
        limit_offset = self.removable_end if limit_offset is None else limit_offset
        try:
            count = retention.due_segments_count(
                self.segments, self.log_start_offset, self.log_end_offset, limit_offset, self.config, now_ms
            )
        except CorruptLog as damage:
            self._report_damage(damage)
            raise
        if count == len(self._segments):
            # The active segment is due too: an empty one replaces it.
            self.roll(now_ms)
            count = min(count, len(self._segments) - 1)
        if count > 0:
            self._remove_first_segments(count)
        return count

    def _remove_first_segments(self, count: int) -> None:
        self._segments.remove_first(count)
        self.log_start_offset = max(self.log_start_offset, self._segments.first.base_offset)
        self._forget_places()
        self._host.log_start_moved(self)
        self.note("segments_deleted", count=count, log_start_offset=self.log_start_offset)

    def _forget_places(self) -> None:
        """Closed segments left the log: no remembered place points into them."""
        self._places.forget()
        if not self._segments.has(self._places.stable_segment):
            # It ended at the stable end, below which all of them lay: the next batch starts the segment after it.
            following = self._segments.after(self._places.stable_segment)
            assert following is not None
            self._places.set_stable(following, 0)

    def write_start_snapshots(self) -> None:
        """Make the producers' snapshots durable that replace the batches below the log start.

        Called before the log start is checkpointed: from then on those batches may be removed, at a restart too.
        """
        for offset in self.begin_start_snapshots():
            sync_snapshot(self._disk, self.path, offset)

    def begin_start_snapshots(self) -> list[int]:
        """Write those that are missing; `sync_snapshot` makes the snapshots of these offsets durable."""
        offsets = []
        segments = self._segments.with_removed()
        holds_start = self._segments[self._segments.slot_for(self.log_start_offset)]
        for base_offset in sorted({self._segments.first.base_offset, holds_start.base_offset}):
            if base_offset > segments[0].base_offset:
                now_ms, expiration_ms = self._host.now_ms(), self.producers.expiration_ms
                ensure_snapshot(self._disk, self.path, segments, base_offset, now_ms, expiration_ms, sync=False)
                offsets.append(base_offset)
        return offsets

    def release_removed_segments(self, retire: Callable[[Segment], None]) -> None:
        """The log start is checkpointed: call `retire` with each removed segment, oldest first.

        Also drops epochs and snapshots below the log start.  After an `OSError` of `retire` its segment and the later
        ones are kept for the next call.
        """
        if self._epochs.truncate_from_start(self.log_start_offset):
            self._has_other_unsynced = True
            self._scheduler.mark_due(self)
        self._segments.release_removed(retire)
        remove_snapshots(self._disk, self.path, below=self._segments.first.base_offset)

    def expire_producers(self, now_ms: int) -> int:
        """Forget idempotent producers that appended nothing for too long; returns how many."""
        return self.producers.expire(now_ms)

    def begin_swap(self, replaced: Sequence[int]) -> bool:
        """Keep the segments with these base offsets until `end_swap`; False when retention has removed all of them.

        Raises `SwapRefused` when the log accepts no changes or has other segments there.
        """
        if self._swap_slot(replaced) is None:
            return False
        self.is_swapping = True
        return True

    def _swap_slot(self, replaced: Sequence[int]) -> int | None:
        if self.failure is not None or self.is_deleted:
            raise SwapRefused(f"{self.topic_partition} accepts no changes")
        if replaced[-1] < self._segments.first.base_offset:
            return None
        slot = self._segments.slot_of_closed(replaced)
        if slot is None:
            raise SwapRefused(f"{self.topic_partition} has other segments than were cleaned")
        return slot

    def check_swap(self, replaced: Sequence[int]) -> None:
        """Raise `SwapRefused` when `replace_segments` cannot be called for a swap that started."""
        assert self.is_swapping
        slot = self._swap_slot(replaced)
        assert slot is not None, "segments were removed while they were swapped"

    def replace_segments(self, replaced: Sequence[int], cleaned: Sequence[tuple[int, int]]) -> None:
        """Replace closed segments by cleaned ones, (base offset, size in bytes) each, whose files are in place.

        Raises `OSError` when a stale snapshot of the producers cannot be removed.
        """
        assert self.is_swapping
        slot = self._swap_slot(replaced)
        assert slot is not None, "segments were removed while they were swapped"
        self.update_config(replace(self.config, was_compacted=True))
        created_ms = self._segments[slot + len(replaced) - 1].created_ms
        fresh = [self._new_segment(base_offset, created_ms, size_bytes) for base_offset, size_bytes in cleaned]
        removed = self._segments.replace(slot, len(replaced), fresh)
        self._forget_places()
        kept = {segment.base_offset for segment in fresh}
        for segment in removed:
            path = f"{self.path}/{snapshot_file_name(segment.base_offset)}"
            if segment.base_offset not in kept and self._disk.exists(path):
                self._disk.remove(path)

    def end_swap(self) -> None:
        """The swap is over, done or not: segments may be removed again."""
        self.is_swapping = False

    async def truncate_to(self, offset: int, offload: Offload, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Cut the log so that it ends at `offset`, or below where that is inside a batch (KIP-101; followers only).

        Below the first segment it is emptied and continues at `offset`, as `reset_to` does it.

        The order makes a crash at any point harmless: first the recorded flushed end goes down, durably, then whole
        segments are removed, newest first, then the last one is cut, and all of that is synced.  In between the log is
        only longer than it should be.  Afterwards nothing that the log remembers is above its end; the observer's
        `on_truncated` is called before the last sync.

        `offload` syncs.  Meanwhile the log refuses appends.  `is_wanted` is called once more after the recorded ends
        were lowered on disk; when it returns False the log is not cut.  Returns whether it was.
        Raises `StorageError`: the log is as it was (`DiskFull`, `TooManyOpenFiles`, `CorruptLog`), or offline.
        """
        if offset >= self.log_end_offset:
            return True
        if offset < self._segments.first.base_offset:
            return await self.reset_to(offset, offload, is_wanted)
        with self._closed_for_cut():
            return await self._truncate(offset, offload, is_wanted)

    async def keep_above(self, offset: int, offload: Offload) -> None:
        """Copy what a cut at `offset` removes to a directory beside this one; right before that cut.

        `offload` copies.  Meanwhile the log takes nothing.  A copy that is not made is logged only.
        """
        with self._closed_for_cut():
            await self._host.finish_swap_in_steps(offload)
            end_offset, runs = self._runs_above(offset)
            if runs:
                await self._host.keep_cut(self, end_offset, runs, offload)

    def _runs_above(self, offset: int) -> tuple[int, list[CutRun]]:
        last, position, end_offset = self._cut_of(offset)
        runs = [CutRun(last.log_path, position, last.size_bytes - position, end_offset)]
        later = [segment for segment in self._segments if segment.base_offset > last.base_offset]
        runs += [CutRun(segment.log_path, 0, segment.size_bytes, segment.base_offset) for segment in later]
        return end_offset, [run for run in runs if run.size_bytes]

    @contextmanager
    def _closed_for_cut(self) -> Iterator[None]:
        """The cut is durable before the next append: a power loss that undid it could leave old batches of one file
        before new ones of the next, at offsets and epochs that fit, and no leader would find the difference.
        """
        assert not self.is_being_cut, "one cut at a time"
        room, self._room = self._room, _CLOSED
        self.is_being_cut = True
        try:
            yield
        finally:
            self._room = room
            self.is_being_cut = False
            self._host.end_cut(self)

    async def _truncate(self, offset: int, offload: Offload, is_wanted: Callable[[], bool]) -> bool:
        lowered_end = FOREVER
        try:
            while True:
                await self._host.finish_swap_in_steps(offload)
                segment, end_position, end_offset = self._cut_of(offset)
                if lowered_end <= end_offset:
                    break
                await self._host.lower_records(self, end_offset, offload)
                lowered_end = end_offset
                if not self._is_cut_wanted(is_wanted):
                    return False
        except OSError as error:
            if self.is_deleted:
                return False
            raise self._write_failed(error) from error
        removed = self._end_at(end_offset, segment, end_position)
        try:
            self._cut_files(removed, end_offset)
        except (OSError, StorageError) as error:
            # After any error: a part is done and cannot be undone.
            segment.hide_from(end_position)
            raise self._fail(error) from error
        finally:
            self.note("truncated", log_end_offset=self.log_end_offset)
            if self._on_truncated is not None:
                self._on_truncated()
        await self._sync_cut(offload)
        return True

    def _is_cut_wanted(self, is_wanted: Callable[[], bool]) -> bool:
        """After a wait.  Raises `StorageError` when the log failed meanwhile."""
        if self.failure is not None:
            raise self.failure
        return not self.is_deleted and is_wanted()

    def _cut_of(self, offset: int) -> tuple[Segment, int, int]:
        """(the segment that will be the last one, its end's position, the log's end) of a cut at `offset`."""
        segment = self._segments[self._segments.slot_for(max(offset, self._segments.first.base_offset))]
        if offset <= segment.base_offset:
            return segment, 0, segment.base_offset
        above = segment.find(offset)
        # After the last batch that stays, so that a gap left by compaction is not counted as part of the log.
        return segment, segment.size_bytes if above is None else above[0], segment.end_below(offset)

    async def _sync_cut(self, offload: Offload) -> None:
        try:
            await self._host.sync_files(offload)
        except OSError as error:
            if self.failure is not None:
                raise self.failure from error
            raise self._fail(error) from error

    def _end_at(self, end_offset: int, segment: Segment, end_position: int) -> list[Segment]:
        """Forget everything above `end_offset`, in memory only; returns the removed segments, oldest first."""
        self._appended_count.go_on(self.appended, end_offset, end_position)
        removed = self._segments.remove_after(segment)
        self._active = segment
        self._has_other_unsynced = True
        self.truncations_count += 1
        self._caches_end = NO_OFFSET
        self._appended_offset = NO_OFFSET
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushed_end = min(self.flushed_end, end_offset)
        self._places.forget()
        if self.stable_end >= end_offset:
            self.stable_end = end_offset
            self._places.set_stable(segment, end_position)
        self._flush_at_offset = self.flushed_end + self.config.flush_messages_max
        return removed

    def _cut_files(self, removed: Sequence[Segment], end_offset: int) -> None:
        for segment in reversed(removed):
            self._remove_files(segment)
        self.aborted.load(self._active)
        left = self._active.truncate_to(end_offset)
        assert left == end_offset
        # Settings may have changed while it was closed.
        self._active.configure(self.config)
        self._epochs.truncate_from_end(end_offset)
        self._epoch_is_new = self._has_new_epoch()
        # They describe batches that were cut.
        remove_snapshots(self._disk, self.path, above=end_offset)
        now_ms = self._host.now_ms()
        self.producers = truncated_producers(self._disk, self.path, self.segments, self.producers, end_offset, now_ms)
        self.transactions.truncated(self.producers, end_offset)
        self._scheduler.mark_due(self)

    async def reset_to(self, offset: int, offload: Offload, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Drop every batch and continue at `offset`, the start of a leader's log (followers only).

        First the log is emptied as `truncate_to` does it, then the empty log starts at `offset`: a crash leaves
        it longer, empty, or started there.  What the log remembers of producers and epochs is dropped too.  `offload`
        and `is_wanted` as there; returns whether it was reset.  Raises `StorageError`: then the log is as it was, or
        empty where it started (call it again), or offline.
        """
        if self.failure is not None:
            raise self.failure
        with self._closed_for_cut():
            first = self._segments.first.base_offset
            if first < self.log_end_offset and not await self._truncate(first, offload, is_wanted):
                return False
            if offset == self.log_end_offset and self.last_epoch() < 0:
                return True
            return await self._begin_at(offset, offset, offload, is_wanted)

    def _is_empty(self) -> bool:
        return len(self._segments) == 1 and self._active.size_bytes == 0

    async def _begin_at(
        self,
        base_offset: int,
        log_start_offset: int,
        offload: Offload,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """The log, which is empty, starts with another segment; False if that was not wanted any more."""
        assert self._is_empty()
        old = self._active
        new = await self._begin_segment(base_offset, log_start_offset, offload, is_wanted)
        if new is None:
            return False
        self._segments.begin_anew(new)
        self.producers = ProducerStates(self.producers.expiration_ms)
        self.transactions.truncated(self.producers, 0)
        self._end_at(base_offset, new, 0)
        self.log_start_offset = self.log_end_offset = self.flushed_end = self.stable_end = base_offset
        self._places.set_stable(new, 0)
        self._flush_at_offset = base_offset + self.config.flush_messages_max
        try:
            if new is not old:
                self._remove_files(old)
            remove_snapshots(self._disk, self.path, below=base_offset, above=base_offset)
        except OSError as error:
            raise self._fail(error) from error
        finally:
            self._scheduler.mark_due(self)
            self.note("begun_at", base_offset=base_offset, log_start_offset=log_start_offset)
            self._host.log_start_moved(self)
            if self._on_truncated is not None:
                self._on_truncated()
        return True

    async def _begin_segment(
        self, base_offset: int, log_start_offset: int, offload: Offload, is_wanted: Callable[[], bool]
    ) -> Segment | None:
        """Record where the log starts, durably, and open the empty segment for it; None if it is not wanted any more.

        A later start is recorded when its file is there: an opening before that drops the file, since it neither
        follows the other nor holds the log's start.  An earlier one is recorded first, since from then on segments
        that will be removed, and one of which may have the new one's name, may be missing.
        """
        old = self._active
        if base_offset == old.base_offset:
            new = old
        else:
            new = self._new_segment(base_offset, self._host.now_ms())
        try:
            # Former epochs and producers say nothing about the log's new content: an opening must find none of them
            # with the new start, also where the batches are there again that it drops then.
            self._epochs.truncate_from_end(0)
            self._epoch_is_new = self._has_new_epoch()
            write_snapshot(self._disk, self.path, base_offset, ProducerStates())
            if base_offset > old.base_offset:
                new.open(create=True)
            # Its name too: a later segment whose name a power loss keeps must not be taken for the log's first one.
            await self._host.sync_files(offload)
            if not self._is_cut_wanted(is_wanted):
                self._drop_begun(new)
                return None
            await self._host.record_begin(self, base_offset, log_start_offset, offload)
            self._require_begin(is_wanted)
            if base_offset < old.base_offset:
                for removed in self._segments.truncate_removed():
                    self._remove_files(removed)
                new.open(create=True)
                await self._host.sync_files(offload)
                self._require_begin(is_wanted)
        except OSError as error:
            if self.is_deleted:
                return None
            raise self._begin_failed(new, error) from error
        new.become_active(OffsetIndex(), TimeIndex())
        return new

    def _require_begin(self, is_wanted: Callable[[], bool]) -> None:
        """Its start is recorded: a log that would lead from another one now takes nothing.  Raises `LogOffline`."""
        if not self.is_deleted and not self._is_cut_wanted(is_wanted):
            raise self._fail(StorageError(f"{self.topic_partition} changed its role while it was begun elsewhere"))

    def _drop_begun(self, new: Segment) -> None:
        """Raises `LogOffline`."""
        if new is self._active:
            return
        new.close()
        try:
            self._remove_files(new)
        except OSError as left:
            # The next clean stop would take it for the log's end.
            raise self._fail(left) from left

    def _begin_failed(self, new: Segment, error: OSError) -> StorageError:
        try:
            self._drop_begun(new)
        except LogOffline as failure:
            return failure
        return self._write_failed(error)

    def _remove_files(self, segment: Segment) -> None:
        for path in segment.existing_paths():
            self._disk.remove(path)

    def take_offline(self, failure: StorageError) -> None:
        """Refuse further appends with `failure`; reads see only what was flushed."""
        self.failure = failure
        self.note("taken_offline", flushed_end=self.flushed_end, log_end_offset=self.log_end_offset)

    def distrust(self) -> None:
        """Damage was found, and other replicas are whole: the next opening reads all of this log, to its checksums.

        Until then it continues as before, but `is_distrusted`.  `mark_distrusted` makes it durable.
        """
        self.is_distrusted = True

    def mark_distrusted(self) -> None:
        """May be called in any thread.  Raises `OSError`."""
        replace_file(self._disk, f"{self.path}/{DISTRUSTED_FILE}", b"")

    def _undo_append(self, segment: Segment, error: OSError) -> StorageError:
        """Cut a failed write off again; returns the error for the producer."""
        try:
            segment.undo()
        except OSError as undo_error:
            # What the file holds after the last batch is not known any more.
            self._host.directory_failed(undo_error)
            if self.failure is not None:
                return self.failure
            return DirectoryOffline(f"writing to {self.path} failed and could not be undone: {error}")
        self._take_back_epochs()
        return self._write_failed(error)

    def _write_failed(self, error: OSError) -> StorageError:
        """The error of a write that was undone, or never started: the log goes offline unless it lacked a resource."""
        if self.failure is not None:
            # A sync was a part of it, and took the directory offline.
            return self.failure
        message = f"nothing was written to {self.topic_partition}: {error.strerror}"
        if lacks_room(error):
            self._host.on_no_room()
        return shortage_of(error, message) or self._fail(error)

    def _fail(self, error: OSError | StorageError) -> LogOffline:
        failure = LogOffline(f"{self.topic_partition} is offline: writing to {self.path} failed: {error}")
        self.failure = failure
        self.note("failed", error=error)
        _log.error(
            "log.offline",
            extra=fields(
                partition=self.topic_partition, error=error, hint=failure.hint, history=self.history.as_fact()
            ),
        )
        return failure

    def note(self, name: str, **facts: object) -> None:
        """Add a change of role or extent to the history that is reported when the log fails; batches are not noted."""
        self.history.add(self._host.now_ms(), name, **facts)

    def check_invariants(self) -> None:
        """What must hold between calls; for tests."""
        self._segments.check_invariants()
        assert self._active is self._segments.active
        assert 0 <= self.log_start_offset <= self.log_end_offset
        assert self.flushed_end <= self.log_end_offset
        assert self.stable_end <= self.log_end_offset
        assert self._active.base_offset <= self.log_end_offset
        assert self._appended_offset < self.log_end_offset
        assert self._appended_offset < 0 or self._appended_position < self._active.size_bytes
        self._places.check_invariants(self.segments, self.log_end_offset)
        if self._is_os_policy and self.failure is None:
            assert self.stable_end == self.log_end_offset

    def mark_deleted(self) -> None:
        """The directory deleted the log: no plan of a flush and no clean may use it any more, and its files are closed
        when the reads and flushes in progress end.
        """
        self.is_deleted = True
        self._segments.release()

    def write_caches(self) -> None:
        """Write the active segment's indexes and the producers' snapshot, for a clean shutdown.

        Nothing is written for a log that is empty or as it was opened: a thousand idle logs cost nothing.
        """
        if self.log_end_offset in (self._caches_end, self._segments.first.base_offset):
            return
        self._active.write_indexes()
        write_snapshot(self._disk, self.path, self.log_end_offset, self.producers)

    def close(self) -> None:
        """Close all files.  Nothing is flushed: the directory does that, for all logs together."""
        self._segments.close()

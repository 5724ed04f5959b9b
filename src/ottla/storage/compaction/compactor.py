"""The cleans of a directory's logs, one at a time: selects the next one, and applies its results.

A caller runs the cleans: it is given a `CleanJob` and passes back `CleanResult`s, in the order in which they were
made.  Everything here is called from the event loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.model.identifiers import TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.runtime.offload import INLINE, Offload, run_inline
from ottla.storage.checkpoints import OffsetCheckpoint, read_cleaned_ends, write_cleaned_ends
from ottla.storage.compaction.compacted_mark import lower_compacted_end
from ottla.storage.compaction.plan import (
    Cleanable,
    CleanedGroup,
    CleanFailure,
    CleanJob,
    CleanResult,
    CleanSummary,
    clean_job,
    cleanable,
    is_due,
)
from ottla.storage.compaction.swap import Swap, remove_cleaned_files
from ottla.storage.directory.removals import Removals
from ottla.storage.errors import StorageError, SwapRefused, lacks_room
from ottla.storage.log.log import Log
from ottla.storage.producers.producer_snapshot import sync_snapshot
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.replay import ensure_snapshot

# The cleaned end (exclusive) of each log of a directory: the `cleaner-offset-checkpoint`, in memory and on disk.
#
# Below its cleaned end a log holds each key once, so a clean need not search for keys there.  An end that is too low
# costs work; one that is too high would keep old values, so it is lowered, durably, before a log is truncated or
# created again.


class CleanedEnds:
    """The loop changes them in memory; `write` makes it durable, in any thread."""

    def __init__(self, disk: Disk, directory: str) -> None:
        found = read_cleaned_ends(disk, directory)
        self._checkpoint = OffsetCheckpoint(found, lambda offsets: write_cleaned_ends(disk, directory, offsets))

    def end_of(self, topic_partition: TopicPartition) -> int:
        return self._checkpoint.offsets.get(topic_partition, 0)

    def set(self, topic_partition: TopicPartition, end_offset: int) -> None:
        self._checkpoint.offsets[topic_partition] = end_offset
        self._checkpoint.changed()

    def lower(self, topic_partition: TopicPartition, end_offset: int) -> None:
        """The log will be truncated to `end_offset`."""
        if self.end_of(topic_partition) > end_offset:
            self.set(topic_partition, end_offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in partitions:
            if self._checkpoint.offsets.pop(topic_partition, None) is not None:
                self._checkpoint.changed()

    @property
    def is_stale(self) -> bool:
        """Whether `write` has something to write."""
        return self._checkpoint.is_stale

    def write(self) -> None:
        """Make all changes before this call durable.  Raises `OSError`: call it again."""
        self._checkpoint.write()


_log = logging.getLogger(__name__)

# Apache Kafka's default of log.cleaner.dedupe.buffer.size.
MAP_BYTES: Final = 128 * 1024 * 1024
# A clean may fail for a temporary reason (a killed worker), but not repeatedly.
GIVEN_UP_MAX: Final = 3
# One that found no room waits until as much is free as it reads, or for this time: it may need far less.
ROOM_RETRY_MS: Final = 600_000


class _Clean(NamedTuple):
    """A clean in progress."""

    log: Log
    job: CleanJob
    truncations_count: int
    begun_ms: int


class _Wait(NamedTuple):
    """A clean found no room: until when (monotonic) its log is left alone, unless so much is free before."""

    until_ms: int
    free_bytes: int


class Compactor:
    """`next_job`, then `apply_result` for each of its results until the clean has ended; or `give_up`."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        clock: Clock,
        logs: Mapping[TopicPartition, Log],
        removals: Removals,
        on_sync_failed: Callable[[OSError], None],
    ) -> None:
        self._disk = disk
        self._path = path
        self._clock = clock
        self._logs = logs
        self._removals = removals
        self._on_sync_failed = on_sync_failed
        self._ends = CleanedEnds(disk, path)
        self._current: _Clean | None = None
        self._swap: Swap | None = None
        self._given_up: dict[TopicPartition, int] = {}
        # Logs whose last clean found no room.
        self._waits: dict[TopicPartition, _Wait] = {}
        # Logs that cannot be cleaned in this process, and why.
        self.uncleanable: dict[TopicPartition, str] = {}
        # Whether the last clean ended without a result: the next one should not follow at once.
        self.has_failed_last = False

    @property
    def is_cleaning(self) -> bool:
        return self._current is not None

    def cleaned_end(self, topic_partition: TopicPartition) -> int:
        """Where (exclusive) the last clean of a log ended, 0 before the first."""
        return self._ends.end_of(topic_partition)

    def next_job(self, now_ms: int, map_bytes: int = MAP_BYTES) -> CleanJob | None:
        """The clean of the log with the greatest dirty part, None when none is due.

        `map_bytes`: of the clean's map from keys to offsets.
        """
        return run_inline(self.next_job_in_steps(now_ms, map_bytes, INLINE))

    async def next_job_in_steps(self, now_ms: int, map_bytes: int, offload: Offload) -> CleanJob | None:
        """`next_job`, with its syncs in another thread."""
        assert self._current is None, "one clean at a time"
        found: list[tuple[float, Log, Cleanable]] = []
        for log in self._logs.values():
            part = self._due_part(log, now_ms)
            if part is not None:
                found.append((part.dirty_ratio, log, part))
        if not found:
            return None
        _, log, part = max(found, key=lambda each: each[0])
        before = (log.truncations_count, log.log_start_offset)
        try:
            producers = await self._keep_producers(log, part.limit_offset, now_ms, offload)
        except OSError as error:
            if not log.is_deleted:
                _log.warning("log.clean_failed", extra=fields(partition=log.topic_partition, reason=str(error)))
            return None
        if log.is_deleted or log.failure is not None or (log.truncations_count, log.log_start_offset) != before:
            # What was dirty may be gone.
            return None
        try:
            job = clean_job(log, part, map_bytes, now_ms, producers)
        except (OSError, StorageError) as error:
            self._mark_uncleanable(log, str(error))
            return None
        self._current = _Clean(log, job, log.truncations_count, self._clock.monotonic_ms())
        self.has_failed_last = False
        return job

    async def _keep_producers(
        self, log: Log, limit_offset: int, now_ms: int, offload: Offload
    ) -> ProducerStates | None:
        """Make the snapshot durable that replaces a producer's last batches: a clean may remove these."""
        expiration_ms = log.producers.expiration_ms
        disk, path = self._disk, log.path
        states = ensure_snapshot(disk, path, log.segments, limit_offset, now_ms, expiration_ms, sync=False)
        if states is not None:
            await offload(lambda: sync_snapshot(disk, path, limit_offset))
        return states

    def _due_part(self, log: Log, now_ms: int) -> Cleanable | None:
        if "compact" not in log.config.cleanup_policy or log.failure is not None:
            return None
        if log.topic_partition in self.uncleanable or self._waits_for_room(log):
            return None
        try:
            part = cleanable(log, self.cleaned_end(log.topic_partition), now_ms)
        except (OSError, StorageError) as error:
            self._mark_uncleanable(log, str(error))
            return None
        return part if part is not None and is_due(log, part) else None

    def _waits_for_room(self, log: Log) -> bool:
        wait = self._waits.get(log.topic_partition)
        if wait is None:
            return False
        if self._clock.monotonic_ms() < wait.until_ms and self._free_bytes() < wait.free_bytes:
            return True
        del self._waits[log.topic_partition]
        return False

    async def apply_result(self, result: CleanResult, offload: Offload = INLINE) -> bool:
        """Apply one result of the clean in progress; returns whether more of its results will follow.

        A clean that cannot continue ends: its files are removed, and a later job retries.
        """
        clean = self._current
        assert clean is not None, "a result of no clean"
        if isinstance(result, CleanFailure):
            self._fail(clean, result.reason, is_damage=result.is_damage, lacks_room=result.lacks_room)
            return False
        log = clean.log
        if log.is_deleted or log.truncations_count != clean.truncations_count:
            self.give_up("the log was truncated or deleted")
            return False
        try:
            if isinstance(result, CleanedGroup):
                swap = self._swap = Swap(
                    self._disk, log, result, lambda paths: self._retire(log, paths), self._on_sync_failed
                )
                while (work := swap.next_work()) is not None:
                    await offload(work)
                return self._current is clean
            self._ends.set(log.topic_partition, result.cleaned_end)
            await offload(self._ends.write)
            if self._current is not clean:
                return False
        except SwapRefused as error:
            if self._current is clean:
                self.give_up(str(error))
            return False
        except (OSError, StorageError) as error:
            if self._current is clean:
                self._fail(clean, str(error), is_damage=False, lacks_room=lacks_room(error))
            return False
        self._current = None
        self._given_up.pop(log.topic_partition, None)
        self._report(clean, result)
        return False

    def _retire(self, log: Log, paths: Sequence[str]) -> None:
        self._removals.add(self._clock.monotonic_ms() + log.config.file_delete_delay_ms, tuple(paths))

    def _report(self, clean: _Clean, summary: CleanSummary) -> None:
        log = clean.log
        seconds = (self._clock.monotonic_ms() - clean.begun_ms) / 1000
        log.note("cleaned", cleaned_end=summary.cleaned_end, bytes_after=summary.bytes_after)
        facts = {
            "partition": log.topic_partition,
            "bytes_before": summary.bytes_before,
            "bytes_after": summary.bytes_after,
            "records_read": summary.records_read_count,
            "records_kept": summary.records_kept_count,
            "keys": summary.keys_count,
            "cleaned_end": summary.cleaned_end,
            "seconds": round(seconds, 1),
        }
        if summary.is_map_full:
            facts["map_full"] = True
        _log.info("log.cleaned", extra=fields(**facts))
        if summary.keyless_count or summary.unreadable_batches_count:
            _log.warning(
                "log.cleaned_oddly",
                extra=fields(
                    partition=log.topic_partition,
                    keyless_records_removed=summary.keyless_count,
                    unreadable_batches_kept=summary.unreadable_batches_count,
                ),
            )

    def give_up(self, reason: str) -> None:
        """End the clean in progress, without a fault of its log: the broker stops, the log was truncated."""
        clean = self._current
        if clean is not None:
            self._end(clean)
            clean.log.note("clean_given_up", reason=reason)
            _log.info("log.clean_given_up", extra=fields(partition=clean.log.topic_partition, reason=reason))

    def _fail(self, clean: _Clean, reason: str, *, is_damage: bool, lacks_room: bool = False) -> None:
        """Damage is final; want of room is no fault of the log; anything else is retried, but not for ever."""
        self._end(clean)
        log = clean.log
        if log.is_deleted:
            return
        if lacks_room:
            self._wait_for_room(clean, reason)
            return
        given_up_count = self._given_up[log.topic_partition] = self._given_up.get(log.topic_partition, 0) + 1
        log.note("clean_failed", reason=reason)
        if is_damage or given_up_count >= GIVEN_UP_MAX:
            self._mark_uncleanable(log, reason)
        else:
            _log.warning("log.clean_failed", extra=fields(partition=log.topic_partition, reason=reason))

    def _wait_for_room(self, clean: _Clean, reason: str) -> None:
        needed_bytes = sum(segment.size_bytes for segment in clean.job.segments)
        if self._free_bytes() >= needed_bytes:
            # A quota, or no inodes: the free bytes do not show it.
            needed_bytes = INT64_MAX
        until_ms = self._clock.monotonic_ms() + ROOM_RETRY_MS
        self._waits[clean.log.topic_partition] = _Wait(until_ms, needed_bytes)
        _log.warning("log.clean_without_room", extra=fields(partition=clean.log.topic_partition, reason=reason))

    def _free_bytes(self) -> int:
        """0 where it cannot be read: then the time decides."""
        try:
            return self._disk.free_bytes(self._path)
        except OSError:
            return 0

    async def finish_swap_in_steps(self, offload: Offload) -> None:
        """`finish_swap`, with the disk's part elsewhere; the clean continues."""
        while (swap := self._swap) is not None and not swap.is_over:
            try:
                while (work := swap.next_work()) is not None:
                    await offload(work)
            except (OSError, StorageError) as error:
                # The next result of the clean finds the remaining segments.
                _log.warning("log.clean_failed", extra=fields(partition=swap.log.topic_partition, reason=str(error)))

    def finish_swap(self) -> None:
        """Finish the swap in progress, if there is one, before this returns."""
        swap, self._swap = self._swap, None
        if swap is None or swap.is_over:
            return
        try:
            swap.finish()
        except (OSError, StorageError) as error:
            # The next result of the clean finds the remaining segments.
            _log.warning("log.clean_failed", extra=fields(partition=swap.log.topic_partition, reason=str(error)))

    def _end(self, clean: _Clean) -> None:
        # A committed swap needs the cleaned files.
        self.finish_swap()
        self._current = None
        self.has_failed_last = True
        # After a failure in the middle of a swap the files belong to it.
        if not clean.log.is_deleted and clean.log.failure is None:
            try:
                remove_cleaned_files(self._disk, clean.log.path)
            except OSError as error:
                _log.warning("log.cleaned_files_left", extra=fields(path=clean.log.path, reason=str(error)))

    def _mark_uncleanable(self, log: Log, reason: str) -> None:
        self.uncleanable[log.topic_partition] = reason
        _log.error(
            "log.uncleanable", extra=fields(partition=log.topic_partition, reason=reason, history=log.history.as_fact())
        )

    def begin_cut(self, log: Log, end_offset: int) -> None:
        """The log will end at `end_offset`: later appends are dirty, and dense.  Durable after `write_cut`."""
        self._ends.lower(log.topic_partition, end_offset)

    def write_cut(self, path: str, end_offset: int) -> None:
        """For the log at this path.  Runs in any thread."""
        self._ends.write()
        lower_compacted_end(self._disk, path, end_offset)

    async def forget(self, partitions: Iterable[TopicPartition], offload: Offload) -> None:
        """Logs are deleted or created: forget the records of a log of that name, durably.  Raises `OSError`."""
        forgotten = list(partitions)
        for topic_partition in forgotten:
            self.uncleanable.pop(topic_partition, None)
            self._given_up.pop(topic_partition, None)
            self._waits.pop(topic_partition, None)
        self._ends.forget(forgotten)
        if self._ends.is_stale:
            await offload(self._ends.write)

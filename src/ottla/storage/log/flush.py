"""Which logs are flushed when: group commit over all dirty logs (the paper's section 3.1: after a count or a time).

The scheduler does no I/O: it plans what to sync and is given the outcome.  A thread executes the plan; it touches open
files and directories only.  One plan is under way at a time: what became dirty meanwhile is in the next one.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk, File
from ottla.storage.log.log import Log, LogFlush
from ottla.storage.log_config import FOREVER

# Measured, ms for 4 KiB appended to each of N files, N = 1 / 16 / 100: one by one 0.15 / 2.5 / 15.5, syncfs
# 0.18 / 0.51 / 1.9.  They cross at 2-3 files, but syncfs also waits for the dirty pages of all other files on that file
# system, so a few more files than that are still synced one by one.
SYNCS_ONE_BY_ONE_MAX: Final = 4
# From here on the disk is slow, and files are synced at the same time, each in a thread: four of 300 ms take 305 ms
# instead of 1,203.  Below it the threads, 0.1 ms, buy nothing: four of 0.27 ms take 0.9 ms instead of 1.1.
SLOW_SYNC_MS: Final = 10.0
# The delay before a log is planned again after its planning failed.
RETRY_MS: Final = 1_000
# A flush that takes longer is stuck: a disk that is merely slow, or shared, takes seconds at most.  Clients get half of
# the 10 s within which other brokers must serve them; the election and their refresh of metadata get the rest.
STUCK_FLUSH_MS: Final = 5_000
# The interval of probes of a stuck disk while nothing is due.
PROBE_AFTER_MS: Final = 1_000

_logger = logging.getLogger(__name__)


class FlushPlan:
    """What one flush syncs.  `execute` runs in the flusher's thread.

    More than the active segments' files is synced by the file system: rolled segments, indexes, checkpoints and names
    would each need a descriptor, to be kept open or opened at a moment when there may be none left.
    """

    __slots__ = ("flushes", "root_path", "syncs_at_once", "syncs_file_system", "took_ms")

    def __init__(self, flushes: Sequence[LogFlush], root_path: str, *, syncs_at_once: bool = False) -> None:
        """`syncs_at_once`: whether each file is synced in a separate thread."""
        # None of a probe: a sync of the file system shows how long the disk takes.
        self.flushes = flushes
        self.root_path = root_path
        self.syncs_file_system = (
            not flushes or len(flushes) > SYNCS_ONE_BY_ONE_MAX or any(flush.has_other_files for flush in flushes)
        )
        self.syncs_at_once = syncs_at_once and len(flushes) > 1
        # How long `execute` took, set by its caller.
        self.took_ms = 0.0

    @property
    def sync_ms(self) -> float | None:
        """How long the sync of a file took, None when only the file system was synced."""
        if self.syncs_file_system:
            return None
        return self.took_ms if self.syncs_at_once else self.took_ms / len(self.flushes)

    def execute(self, disk: Disk) -> None:
        """Make everything in the plan durable.  Raises `OSError`, after which nothing unflushed can be trusted."""
        if self.syncs_file_system:
            disk.sync_file_system(self.root_path)
        elif self.syncs_at_once:
            _sync_at_once([flush.file for flush in self.flushes])
        else:
            for flush in self.flushes:
                flush.file.sync_data()


def _sync_at_once(files: Sequence[File]) -> None:
    """Each in a separate thread.  Raises one of their errors, when all have ended."""
    with ThreadPoolExecutor(len(files), "flusher") as threads:
        for done in [threads.submit(file.sync_data) for file in files]:
            done.result()


class FlushScheduler:
    """Which logs are due: by policy, by count, by age, or because a segment rolled."""

    __slots__ = (
        "_aging",
        "_clock",
        "_due",
        "_entry_of",
        "_has_failed",
        "_is_slow",
        "_on_failed",
        "_on_flushed",
        "_on_marked",
        "_plan",
        "_planned_ms",
        "_probe_due_ms",
        "_root_path",
        "_sequence",
        "is_stuck",
    )

    def __init__(
        self,
        root_path: str,
        clock: Clock,
        *,
        on_flushed: Callable[[FlushPlan], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """`on_flushed` is called after a plan's logs moved their ends and before these are announced."""
        self._root_path = root_path
        self._clock = clock
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_marked: Callable[[], None] = lambda: None
        self._due: dict[Log, None] = {}
        # (due_ms, sequence, log): dirty logs whose policy waits for an age, by the monotonic clock.
        self._aging: list[tuple[int, int, Log]] = []
        # The sequence of each dirty log's entry in `_aging`: the log's other entries are of earlier flushes.
        self._entry_of: dict[Log, int] = {}
        self._sequence = 0
        self._plan: FlushPlan | None = None
        # When the plan in flight was made, by the monotonic clock.
        self._planned_ms = 0
        # Whether a flush that acknowledgements wait for is stuck, or was, and none has been faster since.
        self.is_stuck = False
        self._probe_due_ms = 0
        self._has_failed = False
        # Whether the last sync of a file was slow.
        self._is_slow = False

    @property
    def in_flight(self) -> FlushPlan | None:
        return self._plan

    def watch(self, on_marked: Callable[[], None]) -> None:
        """`on_marked` is called for each log that has become due, or that has started to age until it will be.

        Under policy `os` without `flush.*` settings no append does that.
        """
        self._on_marked = on_marked

    def mark_dirty(self, log: Log) -> None:
        """A clean log took its first batch: due now, after an age, or when something else makes it due."""
        due_after_ms = log.flush_ms_max
        if due_after_ms == 0:
            self.mark_due(log)
        elif due_after_ms < FOREVER:
            self._age(log, self._clock.monotonic_ms() + due_after_ms)
            self._on_marked()

    def mark_due(self, log: Log) -> None:
        """A log must be flushed now: enough messages, a roll, a shutdown."""
        self._due[log] = None
        self._on_marked()

    def forget(self, log: Log) -> None:
        """A log was deleted; a plan in flight may still hold it."""
        self._due.pop(log, None)
        self._entry_of.pop(log, None)

    def stop_planning(self) -> None:
        """A sync failed: no plan counts from now on, since its sync may succeed although the pages are lost.

        May be called in any thread.
        """
        self._has_failed = True

    def next_due_ms(self, now_ms: int) -> int | None:
        """When `plan` may have something: `now_ms` when it has already, None when nothing waits or a plan is out."""
        if self._plan is not None or self._has_failed:
            return None
        if self._due:
            return now_ms
        due_ms = self._aging[0][0] if self._aging else None
        if self.is_stuck:
            return self._probe_due_ms if due_ms is None else min(due_ms, self._probe_due_ms)
        return due_ms

    def plan(self, now_ms: int) -> FlushPlan | None:
        """Everything that is due, as one plan; None while one is in flight or when nothing is.

        A disk that was stuck gets a probe when nothing else is due.
        """
        if self._plan is not None or self._has_failed:
            return None
        if self._aging and self._aging[0][0] <= now_ms:
            self._mark_aged_due(now_ms)
        if not self._due:
            return self._planned((), now_ms) if self.is_stuck and now_ms >= self._probe_due_ms else None
        due, self._due = self._due, {}
        if self._entry_of:
            for log in due:
                self._entry_of.pop(log, None)
        flushes = [flush for log in due if not log.is_deleted and (flush := self._begin_flush(log, now_ms)) is not None]
        return self._planned(flushes, now_ms) if flushes else None

    def _planned(self, flushes: Sequence[LogFlush], now_ms: int) -> FlushPlan:
        self._planned_ms = now_ms
        self._plan = FlushPlan(flushes, self._root_path, syncs_at_once=self._is_slow)
        return self._plan

    def becomes_stuck(self, now_ms: int) -> bool:
        """Whether the plan in flight is found to be stuck now: it is late, and an acknowledgement waits for it.

        Under policy `os` none does: a roll may have a gigabyte to sync, and takes its time.
        """
        plan = self._plan
        if plan is None or self.is_stuck or now_ms - self._planned_ms < STUCK_FLUSH_MS:
            return False
        logs = [*(flush.log for flush in plan.flushes), *self._due]
        self.is_stuck = any(log.stable_end < log.log_end_offset and not log.is_deleted for log in logs)
        return self.is_stuck

    def _begin_flush(self, log: Log, now_ms: int) -> LogFlush | None:
        """None when the log fails: the others must not wait for it, and it is planned again later."""
        try:
            return log.begin_flush()
        except Exception:
            _logger.exception("flush.not_planned", extra=fields(partition=log.topic_partition))
            self._age(log, now_ms + RETRY_MS)
            return None

    def _age(self, log: Log, due_ms: int) -> None:
        self._sequence += 1
        self._entry_of[log] = self._sequence
        heapq.heappush(self._aging, (due_ms, self._sequence, log))

    def _mark_aged_due(self, now_ms: int) -> None:
        while self._aging and self._aging[0][0] <= now_ms:
            _, sequence, log = heapq.heappop(self._aging)
            # Else it was flushed since, and if it is dirty again a later entry is its own.
            if self._entry_of.get(log) == sequence:
                self._due[log] = None

    def complete(self, plan: FlushPlan, error: OSError | None, now_ms: int) -> None:
        """The thread has executed the plan: move the ends, or report the failure."""
        assert plan is self._plan, "only the plan in flight can be completed"
        self._plan = None
        if error is not None:
            self.stop_planning()
            self._on_failed(error)
        if self._has_failed:
            return
        if self.is_stuck:
            self.is_stuck = now_ms - self._planned_ms >= STUCK_FLUSH_MS
            self._probe_due_ms = now_ms + PROBE_AFTER_MS
        sync_ms = plan.sync_ms
        if sync_ms is not None:
            self._is_slow = sync_ms >= SLOW_SYNC_MS
        ended = [flush.log for flush in plan.flushes if self._is_ended(flush)]
        # Recorded after the sync and before any observer is called: at worst the record lags the log.
        self._on_flushed(plan)
        for log in ended:
            try:
                log.announce_stable()
            except Exception:
                _logger.exception("flush.not_announced", extra=fields(partition=log.topic_partition))

    def _is_ended(self, flush: LogFlush) -> bool:
        """Move the log's ends.  A log that fails must not delay the others of its plan."""
        try:
            flush.log.end_flush(flush)
        except Exception:
            _logger.exception("flush.not_ended", extra=fields(partition=flush.log.topic_partition))
            return False
        return True

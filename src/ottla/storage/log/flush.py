"""When what is flushed: group commit over all dirty logs (the paper's section 3.1: flush after a count or a time).

The scheduler is pure: it says what to sync and takes the outcome.  A thread executes the plan; it touches open
files and directories only.  One plan is under way at a time, so everything that became dirty meanwhile rides the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ottla.runtime.disk import Disk
from ottla.storage.log.log_flush import LogFlush, begin_flush, end_flush

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

# Measured, ms for 4 KiB appended to each of N files, N = 1 / 16 / 100: one by one 0.15 / 2.5 / 15.5, syncfs
# 0.18 / 0.51 / 1.9.  They cross at 2-3 files, but syncfs also waits for everybody else's dirty pages on that file
# system, so a few more files than that are still synced one by one.
SYNCS_ONE_BY_ONE_MAX: Final = 4


class FlushPlan:
    """What one flush syncs.  `execute` runs in the flusher's thread."""

    __slots__ = ("flushes", "number", "root_path", "syncs_file_system")

    def __init__(self, number: int, flushes: Sequence[LogFlush], root_path: str) -> None:
        self.number = number
        self.flushes = flushes
        self.root_path = root_path
        count = sum(len(flush.files) + (flush.directory is not None) for flush in flushes)
        self.syncs_file_system = count > SYNCS_ONE_BY_ONE_MAX

    def execute(self, disk: Disk) -> None:
        """Make everything in the plan durable.  Raises `OSError`, after which nothing unflushed can be trusted."""
        if self.syncs_file_system:
            disk.sync_file_system(self.root_path)
            return
        for flush in self.flushes:
            for file in flush.files:
                file.sync_data()
            if flush.directory is not None:
                try:
                    disk.sync_directory(flush.directory)
                except FileNotFoundError:
                    # The topic was deleted meanwhile: its directory has another name, its log no readers.
                    if not flush.log.is_deleted:
                        raise


class RecordsFlushedEnds(Protocol):
    """Where flushed ends are written down, so that recovery can tell a torn tail from damage."""

    def record(self, logs: Iterable[Log]) -> None: ...


class FlushScheduler:
    """Which logs are due: by policy, by count, by age, or because a segment rolled."""

    __slots__ = (
        "_aging",
        "_due",
        "_plan",
        "_root_path",
        "_sequence",
        "has_failed",
        "on_failed",
        "on_flushed",
        "plans_count",
    )

    def __init__(self, root_path: str) -> None:
        self._root_path = root_path
        self._due: dict[Log, None] = {}
        # (due_ms, sequence, log): dirty logs whose policy waits for an age.  Entries may be stale: see `_take_aged`.
        self._aging: list[tuple[int, int, Log]] = []
        self._sequence = 0
        self._plan: FlushPlan | None = None
        self.plans_count = 0
        # After a failed sync nothing is planned any more: the next one may succeed although the pages are lost.
        self.has_failed = False
        self.on_flushed: Callable[[FlushPlan], None] | None = None
        self.on_failed: Callable[[OSError], None] | None = None

    @property
    def in_flight(self) -> FlushPlan | None:
        return self._plan

    @property
    def has_waiting(self) -> bool:
        """Whether any log is due or will be.  Under policy `os` without `flush.*` settings there is none."""
        return bool(self._due or self._aging)

    def mark_dirty(self, log: Log, now_ms: int) -> None:
        """A clean log took its first batch.  All times here are monotonic ones."""
        due_after_ms = log.flush_ms_max
        log.dirty_since_ms = now_ms
        if due_after_ms == 0:
            self._due[log] = None
        elif due_after_ms < _FOREVER:
            self._sequence += 1
            heapq.heappush(self._aging, (now_ms + due_after_ms, self._sequence, log))

    def mark_due(self, log: Log) -> None:
        """A log must be flushed now: enough messages, a roll, a shutdown."""
        self._due[log] = None

    def forget(self, log: Log) -> None:
        """A log is gone; a plan in flight may still hold it."""
        self._due.pop(log, None)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When `plan` may have something: `now_ms` when it has already, None when nothing waits or a plan is out."""
        if self._plan is not None or self.has_failed:
            return None
        if self._due:
            return now_ms
        return self._aging[0][0] if self._aging else None

    def plan(self, now_ms: int) -> FlushPlan | None:
        """Everything that is due, as one plan; None while one is in flight or when nothing is."""
        if self._plan is not None or self.has_failed:
            return None
        if self._aging and self._aging[0][0] <= now_ms:
            self._take_aged(now_ms)
        if not self._due:
            return None
        due, self._due = self._due, {}
        flushes = [begin_flush(log) for log in due if not log.is_deleted]
        if not flushes:
            return None
        self.plans_count += 1
        self._plan = FlushPlan(self.plans_count, flushes, self._root_path)
        return self._plan

    def _take_aged(self, now_ms: int) -> None:
        while self._aging and self._aging[0][0] <= now_ms:
            _, _, log = heapq.heappop(self._aging)
            # It may have been flushed and become dirty again since: then a later entry stands for it.
            if log.is_dirty and log.dirty_since_ms + log.flush_ms_max <= now_ms:
                self._due[log] = None

    def complete(self, plan: FlushPlan, error: OSError | None, now_ms: int) -> None:
        """The thread is done with the plan: move the ends, or take the directory out of use."""
        assert plan is self._plan, "only the plan in flight can be completed"
        self._plan = None
        if error is not None:
            self.has_failed = True
            if self.on_failed is not None:
                self.on_failed(error)
        if self.has_failed:
            return
        for flush in plan.flushes:
            end_flush(flush)
        # Recorded after the sync and before anybody is told: at worst the record is older than the truth.
        if self.on_flushed is not None:
            self.on_flushed(plan)
        for flush in plan.flushes:
            flush.log.tell_stable()


_FOREVER: Final = 2**63 - 1

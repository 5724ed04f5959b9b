"""Cleaned segments replace those of a log.

The syncs run in another thread, the rest runs between two turns of the event loop: committing touches nothing of the
log, and when the cleaned files have their names and the log knows them, settling touches only the file that describes
the swap.  In between no segment is removed: retention waits, and a truncation or a deletion finishes the swap first.

Readers that have runs of the old files keep them open; the files are removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from ottla.runtime.disk import Disk
from ottla.storage.compaction.cleaned_segment import CLEANED_SUFFIX
from ottla.storage.compaction.job import CleanedGroup
from ottla.storage.compaction.swap_file import commit_swap, is_swap_begun, move_files, settle_swap
from ottla.storage.errors import LogOffline, StorageError
from ottla.storage.log_files import segment_file_name

if TYPE_CHECKING:
    from ottla.storage.log.log import Log


class DiskWork:
    """Slow work that touches only the disk: done once, by the thread that calls it first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = Lock()
        self.is_done = False
        self.error: OSError | None = None

    def __call__(self) -> None:
        """Returns when it is done, also when another thread does it."""
        with self._lock:
            if self.is_done:
                return
            try:
                self._work()
            except OSError as error:
                self.error = error
            self.is_done = True


class Swap:
    """Swaps in one cleaned group: call what `next_work` returns, in any thread, until it returns None.

    `on_swapped` is called with the paths of the replaced files as soon as the log has its new segments; never when
    retention has removed the whole group.
    `on_sync_failed` is called when a sync failed and the state after a crash is unknown.
    """

    def __init__(
        self,
        disk: Disk,
        log: Log,
        group: CleanedGroup,
        on_swapped: Callable[[list[str]], None],
        on_sync_failed: Callable[[OSError], None],
    ) -> None:
        self.log = log
        self._disk = disk
        self._group = group
        self._on_swapped = on_swapped
        self._on_sync_failed = on_sync_failed
        self._work: DiskWork | None = None
        self._error: OSError | StorageError | None = None
        self._go_on: Callable[[], None] | None = self._begin

    def next_work(self) -> DiskWork | None:
        """Called from the event loop's thread only, as `finish`.

        Raises `SwapRefused` and `OSError`: the log is as it was; `LogOffline`: a restart completes the swap.  An error
        that it raised is raised again by later calls.
        """
        while self._go_on is not None:
            if self._work is not None and not self._work.is_done:
                return self._work
            go_on, self._go_on = self._go_on, None
            try:
                go_on()
            except (OSError, StorageError) as error:
                self._error = error
            if self._go_on is None:
                self.log.end_swap()
        if self._error is not None:
            raise self._error
        return None

    @property
    def is_over(self) -> bool:
        return self._go_on is None

    def finish(self) -> None:
        """Do the rest in this thread: the caller cannot wait.  Raises as `next_work`."""
        while (work := self.next_work()) is not None:
            work()

    def _begin(self) -> None:
        disk, path = self._disk, self.log.path
        if not self.log.begin_swap(self._group.replaced):
            _discard(disk, path, self._group)
            return
        self._work = DiskWork(lambda: commit_swap(disk, path, self._group))
        self._go_on = self._replace_segments

    def _replace_segments(self) -> None:
        disk, log = self._disk, self.log
        assert self._work is not None
        error = self._work.error
        if error is not None:
            if is_swap_begun(disk, log.path):
                # Whether it survives a crash is unknown, as after any failed sync.
                self._on_sync_failed(error)
            raise error
        try:
            log.check_swap(self._group.replaced)
            retired = move_files(disk, log.path, self._group)
            cleaned = [(files.base_offset, files.size_bytes) for files in self._group.cleaned]
            log.replace_segments(self._group.replaced, cleaned)
        except (OSError, StorageError) as failed:
            raise self._offline(failed) from failed
        self._on_swapped(retired)
        self._work = DiskWork(lambda: settle_swap(disk, log.path))
        self._go_on = self._end

    def _end(self) -> None:
        assert self._work is not None
        if self._work.error is not None:
            raise self._offline(self._work.error) from self._work.error

    def _offline(self, error: OSError | StorageError) -> LogOffline:
        log = self.log
        failure = LogOffline(f"{log.topic_partition} is offline: replacing its segments failed: {error}")
        if log.failure is None:
            log.take_offline(failure)
        return failure


def _discard(disk: Disk, directory: str, group: CleanedGroup) -> None:
    for files in group.cleaned:
        for suffix in files.suffixes:
            disk.remove(f"{directory}/{segment_file_name(files.base_offset, suffix)}{CLEANED_SUFFIX}")

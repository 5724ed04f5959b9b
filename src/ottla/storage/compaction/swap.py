"""Replacing old files by cleaned ones, so that a crash at any point leaves the old log or the new one.

1. The cleaned files and their names are durable (the clean does that).
2. `compaction-swap` lists the old files and their replacements; its sync commits the swap.
3. Old files get `.deleted` names, cleaned ones their final names; the directory is synced.
4. `compaction-swap` is removed, durably, before anything else can give a file one of these names.

A crash before 2 undoes the clean: cleaned files without a swap are removed at the next opening.  A crash after it is
completed there: a step is skipped exactly when it is done already, which the names show.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final

from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.compaction.cleaned_segment import CLEANED_SUFFIX
from ottla.storage.compaction.plan import CleanedGroup, result_from_json, result_to_json
from ottla.storage.errors import CorruptLog, LogOffline, StorageError
from ottla.storage.log_files import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, segment_file_name

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

SWAP_FILE: Final = "compaction-swap"


def commit_swap(disk: Disk, directory: str, group: CleanedGroup) -> None:
    """Commit the swap: once this returns, a crash at any point completes it."""
    text = result_to_json(group)
    replace_file(disk, f"{directory}/{SWAP_FILE}", f"{crc32c(text.encode())}\n{text}\n".encode())


def remove_cleaned_files(disk: Disk, directory: str) -> None:
    """Remove the files of an abandoned clean."""
    for name in disk.list_directory(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.remove(f"{directory}/{name}")


def is_swap_begun(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{SWAP_FILE}")


def complete_swap(disk: Disk, directory: str) -> list[str]:
    """Finish the swap that was committed; returns the paths of the old files, under their new names."""
    retired = move_files(disk, directory, _read(disk, f"{directory}/{SWAP_FILE}"))
    settle_swap(disk, directory)
    return retired


def move_files(disk: Disk, directory: str, group: CleanedGroup) -> list[str]:
    """Step 3 without its sync: no file of the log has its own name again before `settle_swap` has returned."""
    retired = _rename(disk, directory, group)
    for files in group.cleaned:
        path = f"{directory}/{segment_file_name(files.base_offset)}"
        if not disk.exists(path) or disk.file_size_bytes(path) != files.size_bytes:
            raise CorruptLog(path, -1, files.base_offset, "a cleaned segment is not what was put in its place")
    return retired


def settle_swap(disk: Disk, directory: str) -> None:
    """The swap has ended: its names are durable, and no restart repeats it."""
    disk.sync_directory(directory)
    disk.remove(f"{directory}/{SWAP_FILE}")
    disk.sync_directory(directory)


def _rename(disk: Disk, directory: str, group: CleanedGroup) -> list[str]:
    retired: list[str] = []

    def retire(path: str) -> None:
        if disk.exists(path):
            disk.rename(path, path + DELETED_SUFFIX)
            retired.append(path + DELETED_SUFFIX)

    fresh = {(files.base_offset, suffix) for files in group.cleaned for suffix in files.suffixes}
    for base_offset in group.replaced:
        for suffix in SEGMENT_SUFFIXES:
            if (base_offset, suffix) not in fresh:
                retire(f"{directory}/{segment_file_name(base_offset, suffix)}")
    for base_offset, suffix in sorted(fresh, key=lambda each: (each[0], each[1] == LOG_SUFFIX)):
        path = f"{directory}/{segment_file_name(base_offset, suffix)}"
        # Where the cleaned name is missing, the file has its final name already.
        if disk.exists(path + CLEANED_SUFFIX):
            retire(path)
            disk.rename(path + CLEANED_SUFFIX, path)
    return retired


def _read(disk: Disk, path: str) -> CleanedGroup:
    content = read_file(disk, path)
    try:
        crc, text = content.decode().splitlines()
        group = result_from_json(text)
        if int(crc) == crc32c(text.encode()) and isinstance(group, CleanedGroup):
            return group
    except ValueError:
        pass
    raise CorruptLog(path, 0, -1, "not the description of a swap that was written")


# Cleaned segments replace those of a log.
#
# The syncs run in another thread, the rest runs between two turns of the event loop: committing touches nothing of the
# log, and when the cleaned files have their names and the log knows them, settling touches only the file that describes
# the swap.  In between no segment is removed: retention waits, and a truncation or a deletion finishes the swap first.
#
# Readers that have runs of the old files keep them open; the files are removed after `file.delete.delay.ms`.


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

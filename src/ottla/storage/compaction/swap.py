"""A log takes cleaned segments in place of its own.

The syncs are for another thread, the rest happens between two turns of the event loop: committing touches nothing of
the log, and when the cleaned files have their names and the log knows them, settling touches nothing but the file that
describes the swap.  In between no segment may go: retention waits, and a cut or a deletion has the swap finished first.

Readers that have runs of the old files keep them: those are closed and removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from ottla.runtime.disk import Disk
from ottla.storage.compaction.cleaned_segment import CLEANED_SUFFIX
from ottla.storage.compaction.job import CleanedGroup
from ottla.storage.compaction.swap_file import commit_swap, is_swap_begun, move_files, settle_swap
from ottla.storage.errors import LogOffline, StorageError
from ottla.storage.log.log_reader import place_of
from ottla.storage.log_files import segment_file_name
from ottla.storage.producers.producer_snapshot import snapshot_file_name
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.log import Log


class SwapRefused(StorageError):
    """The log is not any more what was cleaned: it was cut, or retention took a part."""

    hint = "nothing: the next clean sees the log as it is"


class Swapped(NamedTuple):
    """What the log does not need any more once its readers are done."""

    segments: list[Segment]
    paths: list[str]


class DiskWork:
    """Something that takes long and touches the disk only: done once, by whichever thread comes first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = Lock()
        self.is_done = False
        self.error: OSError | None = None

    def __call__(self) -> None:
        """Returns when it is done, also where another thread does it."""
        with self._lock:
            if self.is_done:
                return
            try:
                self._work()
            except OSError as error:
                self.error = error
            self.is_done = True


class Swap:
    """Puts a cleaned group in its place: call what `next_work` gives, in any thread, until it gives None.

    `on_taken_in` is called as soon as the log has its new segments; never when retention has taken all of the group.
    """

    def __init__(self, log: Log, group: CleanedGroup, on_taken_in: Callable[[Swapped], None]) -> None:
        self.log = log
        self._group = group
        self._on_taken_in = on_taken_in
        self._work: DiskWork | None = None
        self._error: OSError | StorageError | None = None
        self._go_on: Callable[[], None] | None = self._begin

    def next_work(self) -> DiskWork | None:
        """Called from the event loop's thread only, as `finish`.

        Raises `SwapRefused` and `OSError`: the log is as it was; `LogOffline`: a restart completes the swap.  What it
        raised once it raises again.
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
                self.log.is_swapping = False
        if self._error is not None:
            raise self._error
        return None

    @property
    def is_over(self) -> bool:
        return self._go_on is None

    def finish(self) -> None:
        """Do all that is left right here: something comes that cannot wait.  Raises as `next_work`."""
        while (work := self.next_work()) is not None:
            work()

    def _begin(self) -> None:
        log = self.log
        if _slot_of(log, self._group) is None:
            _discard(log.disk, log.path, self._group)
            return
        log.is_swapping = True
        self._work = DiskWork(lambda: commit_swap(log.disk, log.path, self._group))
        self._go_on = self._take_in

    def _take_in(self) -> None:
        log = self.log
        assert self._work is not None
        error = self._work.error
        if error is not None:
            if is_swap_begun(log.disk, log.path):
                # Whether it will be there after a crash is not known: as after any failed sync.
                log.host.directory_failed(error)
            raise error
        try:
            slot = _slot_of(log, self._group)
            assert slot is not None, "segments went while they were swapped"
            retired = move_files(log.disk, log.path, self._group)
        except (OSError, StorageError) as failed:
            raise self._offline(failed) from failed
        self._on_taken_in(Swapped(_take_in(log, slot, self._group), retired))
        self._work = DiskWork(lambda: settle_swap(log.disk, log.path))
        self._go_on = self._end

    def _end(self) -> None:
        assert self._work is not None
        if self._work.error is not None:
            raise self._offline(self._work.error) from self._work.error

    def _offline(self, error: OSError | StorageError) -> LogOffline:
        log = self.log
        failure = LogOffline(f"{log.topic_partition} is offline: taking in its cleaned segments failed: {error}")
        if log.failure is None:
            log.take_offline(failure)
        return failure


def _slot_of(log: Log, group: CleanedGroup) -> int | None:
    if log.failure is not None or log.is_deleted:
        raise SwapRefused(f"{log.topic_partition} takes no changes")
    if group.replaced[-1] < log.segments.first.base_offset:
        return None
    slot = log.segments.slot_for(group.replaced[0])
    present = [segment.base_offset for segment in log.segments][slot : slot + len(group.replaced)]
    if present != list(group.replaced) or slot + len(present) >= len(log.segments):
        raise SwapRefused(f"{log.topic_partition} has other segments than were cleaned")
    return slot


def _discard(disk: Disk, directory: str, group: CleanedGroup) -> None:
    for files in group.cleaned:
        for suffix in files.suffixes:
            disk.remove(f"{directory}/{segment_file_name(files.base_offset, suffix)}{CLEANED_SUFFIX}")


def _take_in(log: Log, slot: int, group: CleanedGroup) -> list[Segment]:
    log.update_config(replace(log.config, was_compacted=True))
    created_ms = log.segments[slot + len(group.replaced) - 1].created_ms
    fresh = []
    for files in group.cleaned:
        segment = log.new_segment(files.base_offset, created_ms)
        segment.size_bytes = files.size_bytes
        fresh.append(segment)
    replaced = log.segments.replace(slot, len(group.replaced), fresh)
    log.unsynced.forget([segment.file for segment in replaced])
    log.places.forget()
    log.places.set_stable(*place_of(log, log.stable_end))
    kept = {segment.base_offset for segment in fresh}
    for segment in replaced:
        path = f"{log.path}/{snapshot_file_name(segment.base_offset)}"
        if segment.base_offset not in kept and log.disk.exists(path):
            log.disk.remove(path)
    return replaced

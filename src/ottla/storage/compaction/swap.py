"""A log takes cleaned segments in place of its own, between two turns of the event loop.

Readers that have runs of the old files keep them: those are closed and removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.runtime.disk import Disk
from ottla.storage.compaction.cleaned_segment import CLEANED_SUFFIX
from ottla.storage.compaction.job import CleanedGroup
from ottla.storage.compaction.swap_file import commit_swap, complete_swap, is_swap_begun
from ottla.storage.errors import LogOffline, StorageError
from ottla.storage.log_files import segment_file_name
from ottla.storage.log_reader import place_of
from ottla.storage.producer_snapshot import snapshot_file_name
from ottla.storage.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log import Log


class SwapRefused(StorageError):
    """The log is not any more what was cleaned: it was cut, or retention took a part."""

    hint = "nothing: the next clean sees the log as it is"


class Swapped(NamedTuple):
    """What the log does not need any more once its readers are done."""

    segments: list[Segment]
    paths: list[str]


def swap(log: Log, group: CleanedGroup) -> Swapped | None:
    """Put a cleaned group in its place; None when retention has taken all of it meanwhile.

    Raises `SwapRefused` and `OSError`: the log is as it was; `LogOffline`: a restart completes the swap.
    """
    slot = _slot_of(log, group)
    if slot is None:
        _discard(log.disk, log.path, group)
        return None
    try:
        commit_swap(log.disk, log.path, group)
    except OSError as error:
        if is_swap_begun(log.disk, log.path):
            # Whether it will be there after a crash is not known: as after any failed sync.
            log.host.directory_failed(error)
        raise
    try:
        retired = complete_swap(log.disk, log.path)
    except (OSError, StorageError) as error:
        failure = LogOffline(f"{log.topic_partition} is offline: taking in its cleaned segments failed: {error}")
        log.take_offline(failure)
        raise failure from error
    return Swapped(_take_in(log, slot, group), retired)


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

"""Cutting a log's end off: what a follower does whose history is not its leader's (KIP-101).

The order is what makes a crash at any point harmless: first the recorded flushed end goes down, durably, then whole
segments go, newest first, then the last one is cut.  In between the log is only longer than it should be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.producers.producer_snapshot import remove_snapshots
from ottla.storage.producers.replay import producers_at
from ottla.storage.segment.segment_search import end_below, find

if TYPE_CHECKING:
    from ottla.storage.log.log import Log


def truncate(log: Log, offset: int) -> None:
    """See `Log.truncate_to`.  Raises `OSError`, after which the log must not be used."""
    if log.is_swapping:
        log.host.finish_swap()
    segment = log.segments[log.segments.slot_for(offset)]
    find(segment, max(offset, segment.base_offset))
    # Behind the last batch that stays, so that a gap left by compaction is not counted as part of the log.
    end_offset = end_below(segment, offset)
    log.host.before_truncation(log, end_offset)
    _cut_files(log, end_offset)
    _end_at(log, end_offset)
    log.host.mark_due(log)


def _cut_files(log: Log, end_offset: int) -> None:
    slot = log.segments.slot_for(end_offset)
    if slot + 1 < len(log.segments):
        for segment in reversed(log.segments.remove_from(slot + 1)):
            # A flush in flight may still hold the file, so it is closed with the log.
            log.truncated_segments.append(segment)
            for path in segment.existing_paths():
                log.disk.remove(path)
    left = log.segments.active.truncate_to(end_offset)
    assert left == end_offset


def _end_at(log: Log, end_offset: int) -> None:
    """The files end at `end_offset`: so does everything that is known of them."""
    log.truncations_count += 1
    # Only of the segments that are gone: the others may have rolled since the last flush.
    log.unsynced.forget([segment.file for segment in log.truncated_segments])
    log.unsynced.add_names()
    log.log_end_offset = end_offset
    log.flushed_end = min(log.flushed_end, end_offset)
    log.log_start_offset = min(log.log_start_offset, end_offset)
    log.epochs.truncate_from_end(end_offset)
    # What they stand for is gone.
    remove_snapshots(log.disk, log.path, above=end_offset)
    log.producers = producers_at(
        log.disk, log.path, list(log.segments), end_offset, log.host.now_ms(), log.producers.expiration_ms
    )
    log.after_cut()

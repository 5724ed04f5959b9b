"""One log's part of a flush: what must be synced, and what is true of the log afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.runtime.disk import File

if TYPE_CHECKING:
    from ottla.storage.log.log import Log
    from ottla.storage.segment.segment import Segment


class LogFlush(NamedTuple):
    """Where the log ended when the plan was made, and what must be synced for that."""

    log: Log
    end_offset: int
    segment: Segment
    position: int
    files: Sequence[File]
    # Closed when the plan is complete: index files that were written at a roll.
    files_to_close: Sequence[File]
    # A directory with a new segment in it, None when there is none.
    directory: str | None
    truncations_count: int


def begin_flush(log: Log) -> LogFlush:
    """What must be synced for the log to be durable up to its present end."""
    active = log.segments.active
    assert active.file is not None
    taken = log.unsynced.take()
    log.is_dirty = False
    log.flush_at_offset = log.log_end_offset + log.config.flush_messages_max
    return LogFlush(
        log,
        log.log_end_offset,
        active,
        active.size_bytes,
        (*taken.files, active.file),
        taken.files_to_close,
        log.path if taken.has_new_names else None,
        log.truncations_count,
    )


def end_flush(flush: LogFlush) -> None:
    """What `begin_flush` named was synced."""
    log = flush.log
    for file in flush.files_to_close:
        file.close()
    if flush.truncations_count != log.truncations_count:
        # What was flushed was cut meanwhile, and other batches may stand there now: the next flush counts.
        return
    end_offset = flush.end_offset
    assert end_offset <= log.log_end_offset
    if end_offset > log.flushed_end:
        log.flushed_end = end_offset
    if not log.is_os_policy and end_offset > log.stable_end:
        log.places.move_stable(log.stable_end, flush.segment, flush.position)
        log.stable_end = end_offset

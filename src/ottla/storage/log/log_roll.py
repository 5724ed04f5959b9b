"""A log closes its active segment and opens the next one.

The old file and the directory's new entry go into the next flush, so nothing in the new file is stable before its name
is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.runtime.disk import File
from ottla.storage.log.log_failure import write_failed
from ottla.storage.producers.producer_snapshot import write_snapshot
from ottla.storage.segment.offset_index import OffsetIndex
from ottla.storage.segment.time_index import TimeIndex

if TYPE_CHECKING:
    from ottla.storage.log.log import Log
    from ottla.storage.segment.segment import Segment


def roll(log: Log, now_ms: int) -> Segment:
    """The new active segment, which the log's list has already; the log is as it was when this raises."""
    old = log.segments.active
    assert old.file is not None
    new = log.new_segment(log.log_end_offset, now_ms)
    index_files: list[File] = []
    try:
        write_snapshot(log.disk, log.path, log.log_end_offset, log.producers)
        index_files = old.write_indexes()
        # Last: with an empty file already there the old segment must not grow any more.
        new.open(create=True)
    except OSError as error:
        for file in index_files:
            file.close()
        raise write_failed(log, error) from error
    log.unsynced.add_rolled(old.file, index_files)
    new.become_active(OffsetIndex(), TimeIndex())
    old.become_closed()
    log.places.appended_offset = -1
    log.segments.append(new)
    return new

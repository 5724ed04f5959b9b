"""What a failed write makes of a log: as it was before, offline, or with its whole directory out of use."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Final

from ottla.observe.events import fields
from ottla.storage.errors import DirectoryOffline, DiskFull, LogOffline, StorageError

if TYPE_CHECKING:
    from ottla.storage.log.log import Log
    from ottla.storage.segment.segment import Segment

_log = logging.getLogger(__name__)

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def undo_write(log: Log, segment: Segment, error: OSError) -> StorageError:
    """Cut a failed write off again; the error says what it means: no room, or a partition that is done."""
    log.places.appended_offset = -1
    try:
        segment.undo()
    except OSError as undo_error:
        # Nobody knows any more what the file holds behind the last batch.
        log.host.directory_failed(undo_error)
        if log.failure is not None:
            return log.failure
        return DirectoryOffline(f"writing to {log.path} failed and could not be undone: {error}")
    return write_failed(log, error)


def write_failed(log: Log, error: OSError) -> StorageError:
    """A log that does not take bytes is offline from here on, but on a disk that is only full."""
    if error.errno in _NO_ROOM:
        return DiskFull(f"no room on the disk for a batch of {log.topic_partition}: {error.strerror}")
    log.failure = LogOffline(f"{log.topic_partition} is offline: writing to {log.path} failed: {error}")
    log.note("failed", error=error)
    _log.error(
        "log.offline",
        extra=fields(partition=log.topic_partition, error=error, hint=log.failure.hint, story=log.story.tell()),
    )
    return log.failure

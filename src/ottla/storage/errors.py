"""What can go wrong with a log, as one tree.

StorageError            the disk, or its content
  CorruptLog            damage below the recorded flushed end: never cut, the log is not opened
  FlushedEndUnknown     no record of what was flushed, after an unclean stop: the log is not opened
  LogOffline            this partition accepts no more writes in this process (a write failed)
  DiskFull              no room; nothing was written, and appends succeed again when there is room
  DirectoryOffline      the whole log directory is out of use in this process (a sync failed)
  DirectoryLocked       another broker uses the directory
  ForeignDirectory      another program's directory, or another node's
  DirectoryUnusable     the path is no directory, or this user may not write there
  TooManyOpenFiles      the operating system gives this process too few descriptors
  LogExists             a log of that name exists already
  SwapRefused           the log is not what a clean read: cleaned segments cannot replace its own
OffsetOutOfRange        a read or a cut outside of what the log holds
AppendRefused           the batch itself is refused; the log is as it was
  OutOfOrderSequence, InvalidProducerEpoch, WrongTransactionState, CoordinatorReplaced, BatchTooLarge
    BeginningMissing    what a producer that is not known here sends first is not its first batch
  CorruptRun            what a leader sent is damaged
  RunDoesNotFollow      what a leader sent does not continue the log: another offset, an older epoch
"""

from __future__ import annotations

import errno
from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


class StorageError(OttlaError):
    """The log directory or a log in it cannot do what was requested."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class CorruptLog(StorageError):
    """Bytes that were once flushed are no longer what they were.

    `path` is the file, `position` the byte where the first bad batch starts (-1: the file is missing),
    `offset` the first offset that cannot be read.
    """

    hint = (
        "the file was left untouched: restore it from a replica or backup, or stop the broker and see what "
        "`ottla log repair DIR` would keep (`ottla log verify --deep DIR` shows what is damaged)"
    )

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        place = f" at position {position}" if position >= 0 else ""
        super().__init__(f"{path} is damaged{place}{f' (offset {offset})' if offset >= 0 else ''}: {reason}")
        self.path = path
        self.position = position
        self.offset = offset
        self.reason = reason


class FlushedEndUnknown(StorageError):
    """A log holds records, the last stop was not clean, and no record says how far the log was flushed.

    Its end may be a torn tail that was never acknowledged, or what damage left of acknowledged records.
    """

    hint = (
        "records at its end may be missing without a trace: restore the directory from a backup, or stop the broker "
        "and see what `ottla log repair DIR` would keep"
    )

    def __init__(self, path: str, record_path: str) -> None:
        super().__init__(f"{path} holds records, and {record_path} does not say how far they were flushed")


class LogOffline(StorageError):
    """A write to this log failed; it accepts no more until the broker is started again."""

    hint = "look at the disk and the kernel's log, then start the broker again"


class DiskFull(StorageError):
    """There was no room for the batch; the log is as it was before."""

    hint = "free space on the file system, delete topics or shorten their retention; appends then resume automatically"


class LogBeingCut(StorageError):
    """A follower's log is being cut, and takes nothing before that is durable."""

    hint = "nothing: it takes records again as soon as the disk has the cut"


class DirectoryOffline(StorageError):
    """The log directory failed as a whole; it stays out of use until this process ends."""

    hint = "after a failed sync nothing unflushed can be trusted: check the disk, then start the broker again"


class DirectoryLocked(StorageError):
    """Another process holds the log directory."""

    hint = "stop the other broker, or give this one its own --data-dir"


class ForeignDirectory(StorageError):
    """The log directory was not made by this broker."""

    hint = "give this broker its own empty --data-dir"


class StaleDirectory(StorageError):
    """The data directory is not the newest one of its broker: a copy of an earlier time, or another one.

    Its logs may lack records that this broker reported as stored.
    """


class DirectoryUnusable(StorageError):
    """The operating system does not let this process make or use the directory."""

    hint = "choose a --data-dir that this user may write to, in a directory that is there; `ottla doctor` looks at it"


class TooManyOpenFiles(StorageError):
    """The operating system gives this process no more descriptors; nothing was written."""

    hint = "raise the limit of open files (see `ottla doctor`) or close connections; appends then resume automatically"


def shortage_of(error: OSError, message: str) -> StorageError | None:
    """The error, with this message, of what failed for want of room or descriptors; None for any other failure.

    Such an operation was undone or never started, so nothing is lost and it works again when there is room.  A failed
    sync is no shortage, with any error number: `Disk.report_failed_syncs` reports it.
    """
    if error.errno in _NO_ROOM:
        return DiskFull(message)
    if lacks_descriptors(error):
        return TooManyOpenFiles(message)
    return None


def lacks_room(error: BaseException) -> bool:
    """Whether the disk, or this user's quota of it, is full."""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


def lacks_descriptors(error: BaseException) -> bool:
    """Whether this process, or the machine, may open no more files."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS


class LogExists(StorageError):
    """A log of this name exists already."""

    error_code = ErrorCode.TOPIC_ALREADY_EXISTS


class SwapRefused(StorageError):
    """The log has changed since the clean: it was truncated, or retention removed a part."""

    hint = "nothing: the next clean sees the log as it is"


class OffsetOutOfRange(OttlaError):
    """An offset below the log's start or above its end."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside of [{log_start_offset}, {log_end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class AppendRefused(OttlaError):
    """A batch cannot be appended because of its content, not because of the disk."""

    error_code = ErrorCode.INVALID_RECORD


class OutOfOrderSequence(AppendRefused):
    """An idempotent producer's batch does not follow its last one."""

    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class BeginningMissing(OutOfOrderSequence):
    """A producer that is not known here does not start with sequence 0, while the log expects that of all."""


class InvalidProducerEpoch(AppendRefused):
    """A batch of a producer that a newer one has replaced."""

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH


class WrongTransactionState(AppendRefused):
    """A batch that is in no open transaction, or one outside of its producer's open transaction."""

    error_code = ErrorCode.INVALID_TXN_STATE


class CoordinatorReplaced(AppendRefused):
    """A marker of a coordinator that a newer one has replaced."""

    error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class BatchTooLarge(AppendRefused):
    """A batch that does not fit into a whole segment."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class CorruptRun(AppendRefused):
    """Batches that a leader sent are not whole: their checksum is wrong, or their heads are impossible."""

    error_code = ErrorCode.CORRUPT_MESSAGE
    hint = "nothing was written; if it comes again from the same leader, run `ottla log verify --deep` on its directory"

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"the leader sent a damaged batch at byte {position} of its answer: {reason}")
        self.position = position
        self.reason = reason


class RunDoesNotFollow(AppendRefused):
    """Batches that a leader sent do not continue the follower's log."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE

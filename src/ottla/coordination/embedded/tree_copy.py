"""A copy of the embedded tree's file, also of one that a running broker has locked: by its bytes, not by SQLite.

SQLite writes a change to the write-ahead log (`-wal`) first, and to the file itself only from there, at a checkpoint.
The log is written over only after a checkpoint of all of it, and then its header has another salt.  So a file that is
copied first, and the log that is copied after it, make one state when the log's header was the same before and after:
everything that a checkpoint wrote to the file meanwhile is in the log too, and its pages are read before the file's.
The last commit in the copy may be cut short: its checksums show it, and SQLite leaves it out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import Final

from ottla.coordination.embedded.errors import TreeStoreDamaged, TreeStoreError, TreeStoreLost
from ottla.coordination.embedded.journal import Journal

WAL_SUFFIX: Final = "-wal"
# What SQLite keeps beside the file while it is open.
SIDE_SUFFIXES: Final = (WAL_SUFFIX, "-shm", "-journal")
_WAL_HEADER_BYTES: Final = 32
# A broker that commits without a pause restarts its log some times in a second.
_ATTEMPTS_MAX: Final = 1_000


def copy_tree(source: str, target: str) -> int:
    """Copy the tree file at `source`, of a broker that runs or not, into the new file `target`; returns its nodes.

    The copy is one whole file, read back and checked, but not synced.  The source is only read.  Raises
    `TreeStoreError` for a source that is missing, damaged, or another program's, and `OSError`.
    """
    for _ in range(_ATTEMPTS_MAX):
        before = _wal_header(source)
        try:
            _copy(source, target)
        except FileNotFoundError:
            raise TreeStoreLost(source, "is missing") from None
        _copy_if_there(source + WAL_SUFFIX, target + WAL_SUFFIX)
        # A restarted log starts with another header: while the header is the former one, nothing after it was
        # overwritten.
        if before == _wal_header(target) == _wal_header(source):
            return _checked(source, target)
    raise TreeStoreError(source, "changes so fast that it could not be copied", hint="try again when the broker rests")


def _wal_header(path: str) -> bytes:
    """Empty when there is no log, or nothing in it."""
    try:
        with open(path + WAL_SUFFIX, "rb") as file:
            return file.read(_WAL_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as read, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)


def _copy_if_there(source: str, target: str) -> None:
    try:
        _copy(source, target)
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            os.remove(target)


def _checked(source: str, target: str) -> int:
    """Take the write-ahead log into the file, and read all of it."""
    try:
        journal = Journal.open(target, may_be_new=False)
        try:
            table, _ = journal.load()
        finally:
            journal.close()
    except TreeStoreError as error:
        problem = str(error).removeprefix(f"tree file {target}: ")
        raise type(error)(source, problem, hint=error.hint) from error
    if len(table) == 1:
        raise TreeStoreDamaged(source, "holds nothing")
    if os.path.exists(target + WAL_SUFFIX):
        raise OSError(errno.EIO, "the write-ahead log was not taken into the file", target)
    return len(table) - 1

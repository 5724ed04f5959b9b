"""The embedded tree's file: one SQLite database, every commit synced.

Table `node` holds the current persistent nodes, each row with its own checksum (SQLite has none); table `ceiling` one
number: no zxid above it has been used.  WAL with synchronous=FULL makes a commit one append and one fsync, and a crash
at any point leaves whole commits only.  An exclusive lock keeps a second process out.

All calls come from one thread, not the event loop's: SQLite objects belong to the thread that created them.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from ottla.coordination.embedded.errors import (
    NOTHING_IN_IT,
    TreeStoreDamaged,
    TreeStoreError,
    TreeStoreFailed,
    TreeStoreForeign,
    TreeStoreFull,
    TreeStoreLocked,
    TreeStoreLost,
    TreeStoreOtherVersion,
)
from ottla.coordination.embedded.node_table import NodeTable, StoredNode, TreeChange
from ottla.coordination.tree import NO_OWNER
from ottla.runtime.posix_disk import PosixDisk

APPLICATION_ID: Final = 0x4F74746C  # "Ottl": SQLite keeps it in the file's header, and `file` shows it
SCHEMA_VERSION: Final = 1

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE node (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL, ctime_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE ceiling (one INTEGER PRIMARY KEY CHECK (one = 1), zxid INTEGER NOT NULL);
INSERT INTO ceiling VALUES (1, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_PUT: Final = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?)"
_REMOVE: Final = "DELETE FROM node WHERE path = ?"
_RAISE_CEILING: Final = "UPDATE ceiling SET zxid = ? WHERE one = 1"

Row = tuple[str, bytes, int, int, int, int, int]
T = TypeVar("T")


class JournalEntry(NamedTuple):
    """The content of one commit: rows to put, paths to remove, and the new zxid ceiling if it rises."""

    put: list[Row]
    remove: list[tuple[str]]
    zxid_ceiling: int | None

    @property
    def is_empty(self) -> bool:
        return not self.put and not self.remove and self.zxid_ceiling is None


def entry_of(change: TreeChange, committed: NodeTable, zxid_ceiling: int | None) -> JournalEntry:
    """The rows of a change.  Ephemeral nodes have none: they are kept in memory only."""
    put: list[Row] = []
    remove: list[tuple[str]] = []
    for path, node in change.nodes.items():
        if node is not None and node.ephemeral_owner == NO_OWNER:
            put.append(_row(path, node))
        else:
            before = committed.find(path)
            if before is not None and before.ephemeral_owner == NO_OWNER:
                remove.append((path,))
    return JournalEntry(put, remove, zxid_ceiling)


class Journal:
    """An open tree file.

    `make_room` is called when the disk is full, and returns whether there is room now: then the commit is tried once
    more.  Without `is_synced` a commit survives the end of its process, and no power loss.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, make_room: Callable[[], bool] | None = None) -> None:
        self.path = path
        self._make_room = make_room
        self.commits_count = 0
        self._connection = connection

    @classmethod
    def open(
        cls,
        path: str,
        *,
        may_be_new: bool = True,
        make_room: Callable[[], bool] | None = None,
        is_synced: bool = True,
    ) -> Journal:
        """Open or create the file.  Raises `TreeStoreError`: foreign, damaged, locked, or impossible to open; and
        lost, before anything is written, when it is not there and `may_be_new` is not given.
        """
        return _translated(
            path, lambda: cls(path, _connect(path, may_be_new=may_be_new, is_synced=is_synced), make_room)
        )

    def load(self) -> tuple[NodeTable, int]:
        """All persistent nodes, each checked against its checksum, and the zxid ceiling."""
        return _translated(self.path, self._load)

    def commit(self, entry: JournalEntry) -> None:
        """Make one batch durable.  Raises `TreeStoreFull` (nothing was written) or `TreeStoreFailed` (outcome
        unknown)."""
        try:
            self._commit(entry)
        except TreeStoreFull:
            if self._make_room is None or not self._make_room():
                raise
            self._commit(entry)

    def _commit(self, entry: JournalEntry) -> None:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.executemany(_REMOVE, entry.remove)
            cursor.executemany(_PUT, entry.put)
            if entry.zxid_ceiling is not None:
                cursor.execute(_RAISE_CEILING, (entry.zxid_ceiling,))
            cursor.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._commit_failure(error) from error
        self.commits_count += 1

    def close(self) -> None:
        """Checkpoint the WAL into the file and close it."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise TreeStoreError(self.path, f"could not be closed cleanly: {error}") from error

    def _commit_failure(self, error: sqlite3.Error) -> TreeStoreError:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            return TreeStoreFailed(self.path, f"commit and rollback failed: {error}")
        # SQLite answers "full" before the commit record is written, so the rollback above is the definite outcome.
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            return TreeStoreFull(self.path, "the disk is full")
        return TreeStoreFailed(self.path, f"commit failed: {error}")

    def _load(self) -> tuple[NodeTable, int]:
        table = NodeTable()
        zxid_max = 0
        rows: Iterable[Row] = self._connection.execute(
            "SELECT path, data, version, czxid, mzxid, ctime_ms, checksum FROM node ORDER BY path"
        )
        for path, data, version, czxid, mzxid, ctime_ms, checksum in rows:
            node = StoredNode(data, version, czxid, mzxid, ctime_ms)
            if checksum != _checksum(path, node):
                raise TreeStoreDamaged(self.path, f"the node {path} is damaged")
            table.put(path, node)
            zxid_max = max(zxid_max, mzxid)
        found: tuple[int] | None = self._connection.execute("SELECT zxid FROM ceiling WHERE one = 1").fetchone()
        if found is None or found[0] < zxid_max:
            raise TreeStoreDamaged(self.path, "the highest change id is missing or too low")
        orphan = table.orphan()
        if orphan is not None:
            raise TreeStoreDamaged(self.path, f"the node {orphan} is missing, although there are nodes below it")
        return table, found[0]


def _connect(path: str, *, may_be_new: bool, is_synced: bool) -> sqlite3.Connection:
    if may_be_new:
        _make_private(path)
    else:
        _require_present(path)
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
    try:
        # The lock comes first: with it WAL needs no shared memory file, and no other process can be in mid-change.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        if _is_empty(path, connection) and not may_be_new:
            raise TreeStoreLost(path, NOTHING_IN_IT)
        # Before the write-ahead log is made, with five syncs.
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'OFF'}")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise TreeStoreError(path, f"the file system does not allow a write-ahead log (got {mode!r})")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: str) -> None:
    """Create the file before SQLite does, which would make it world-readable: configurations may hold secrets."""
    disk = PosixDisk()
    try:
        # Only when it is missing: closing any descriptor of a locked file drops this process's locks on it (POSIX).
        if not disk.exists(path):
            disk.open(path, create=True).close()
            disk.sync_directory(os.path.dirname(path) or ".")
    except OSError as error:
        hint = "the data directory must exist and be writable"
        raise TreeStoreError(path, f"cannot be made: {error.strerror}", hint=hint) from error


def _require_present(path: str) -> None:
    """SQLite creates a missing file, and removes the write-ahead log of an empty one: so check before opening it."""
    disk = PosixDisk()
    try:
        size_bytes = disk.file_size_bytes(path) if disk.exists(path) else None
    except OSError as error:
        raise TreeStoreError(path, f"cannot be read: {error.strerror}") from error
    if not size_bytes:
        problem = "is missing" if size_bytes is None else "is empty"
        raise TreeStoreLost(path, f"{problem}, and its directory is not new")


def _is_empty(path: str, connection: sqlite3.Connection) -> bool:
    """Whether it is new: one that a crash left before the schema was committed, too.  Raises `TreeStoreForeign`,
    `TreeStoreOtherVersion`."""
    application_id: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application_id == 0 and version == 0 and tables == 0:
        return True
    if application_id != APPLICATION_ID:
        raise TreeStoreForeign(path, "is a database of another program")
    if version != SCHEMA_VERSION:
        raise TreeStoreOtherVersion(path, f"has format {version}, this program knows {SCHEMA_VERSION}")
    return False


def _translated(path: str, action: Callable[[], T]) -> T:
    try:
        return action()
    except sqlite3.Error as error:
        raise _open_failure(path, error) from error


def _open_failure(path: str, error: sqlite3.Error) -> TreeStoreError:
    # The low byte is the primary code; the rest distinguishes kinds of the same failure.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return TreeStoreLocked(path, "is in use by another process")
    if code == sqlite3.SQLITE_NOTADB:
        return TreeStoreForeign(path, "is not an SQLite database")
    if code == sqlite3.SQLITE_CORRUPT:
        return TreeStoreDamaged(path, str(error))
    if code == sqlite3.SQLITE_CANTOPEN:
        return TreeStoreError(path, str(error), hint="the data directory must exist and be writable")
    return TreeStoreError(path, str(error))


def _checksum(path: str, node: StoredNode) -> int:
    numbers = f"{path}\0{node.version} {node.czxid} {node.mzxid} {node.ctime_ms}"
    return zlib.crc32(node.data, zlib.crc32(numbers.encode()))


def _row(path: str, node: StoredNode) -> Row:
    return (path, node.data, node.version, node.czxid, node.mzxid, node.ctime_ms, _checksum(path, node))

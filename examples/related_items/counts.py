"""The counts of pairs, in SQLite, with the number of the last batch that is in them.

Counts and number are written in one transaction.  Spark runs a batch again when it was killed before it could note that
the batch is done; then the number says whether the counts have it already.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.errors import OttlaError

_SCHEMA: Final = """
CREATE TABLE pairs (
    item TEXT NOT NULL, other TEXT NOT NULL, sessions INTEGER NOT NULL, PRIMARY KEY (item, other)
) WITHOUT ROWID;
CREATE TABLE last_batch (query_id TEXT NOT NULL, batch_id INTEGER NOT NULL);
"""
_BUSY_S: Final = 30.0


class CountsUnusable(OttlaError):
    """The file cannot be used for this stream's counts."""


class Pair(NamedTuple):
    """`item` and `other` are both in `sessions` sessions."""

    item: str
    other: str
    sessions: int


class PairCounts:
    """The counts in the file `path`.  One process writes, any number read meanwhile."""

    def __init__(self, path: Path, *, has_writes: bool) -> None:
        if not has_writes and not path.exists():
            raise CountsUnusable(f"there are no counts at {path}", hint="`run` makes them")
        self._path = path
        # Spark calls `add` in a thread of its own, one batch after the other.
        self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            if has_writes:
                self._database.execute("PRAGMA journal_mode = WAL")
                (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if not tables:
                    self._database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            self._database.execute("SELECT count(*) FROM last_batch")
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise CountsUnusable(f"{path} cannot be used: {error}", hint="is it a file of this program?") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def add(self, query_id: str, batch_id: int, pairs: Iterable[Pair]) -> bool:
        """Add a batch; False, and nothing is done, when the counts have it.  Batches come in the order of their ids.

        `query_id` is that of the checkpoint.  Raises `CountsUnusable` for another one: it would start at the
        beginning and count everything twice.
        """
        self._database.execute("BEGIN IMMEDIATE")
        try:
            is_new = self._is_new(query_id, batch_id)
            if is_new:
                self._database.executemany(
                    "INSERT INTO pairs VALUES (?, ?, ?) "
                    "ON CONFLICT (item, other) DO UPDATE SET sessions = sessions + excluded.sessions",
                    pairs,
                )
                self._database.execute("DELETE FROM last_batch")
                self._database.execute("INSERT INTO last_batch VALUES (?, ?)", (query_id, batch_id))
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")
        return is_new

    def related(self, item: str, limit: int) -> list[Pair]:
        """The items that are in most sessions with this one; equal ones by name."""
        rows = self._database.execute(
            "SELECT item, other, sessions FROM pairs WHERE item = ? ORDER BY sessions DESC, other LIMIT ?",
            (item, limit),
        )
        return [Pair(*row) for row in rows]

    def all_pairs(self) -> list[Pair]:
        return [Pair(*row) for row in self._database.execute("SELECT item, other, sessions FROM pairs")]

    def _is_new(self, query_id: str, batch_id: int) -> bool:
        last = self._database.execute("SELECT query_id, batch_id FROM last_batch").fetchone()
        if last is not None and last[0] != query_id:
            raise CountsUnusable(
                f"{self._path} has the counts of another checkpoint, and this one would count everything once more",
                hint="name the former checkpoint, or count into a new file",
            )
        return last is None or batch_id > last[1]

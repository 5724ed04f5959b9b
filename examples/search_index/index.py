"""The index: log lines in SQLite, searched by words, and beside them how far each partition was indexed.

Lines and offsets are written in one transaction.  So whenever a process is killed, the file has the lines below each
offset once and none above it, and the next process reads on from there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self
from uuid import UUID

from ottla.errors import OttlaError

from .log_line import LogLine

VERSION: Final = 1
_SCHEMA: Final = (
    """CREATE TABLE positions (
        id INTEGER PRIMARY KEY, cluster_id TEXT NOT NULL, topic TEXT NOT NULL, topic_id TEXT NOT NULL,
        partition INTEGER NOT NULL, next_offset INTEGER NOT NULL,
        UNIQUE (cluster_id, topic, topic_id, partition)
    )""",
    """CREATE TABLE lines (
        id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, level TEXT NOT NULL, service TEXT NOT NULL,
        message TEXT NOT NULL, position INTEGER NOT NULL REFERENCES positions, offset INTEGER NOT NULL
    )""",
    "CREATE INDEX lines_by_time ON lines (at_ms)",
    "CREATE INDEX lines_by_position ON lines (position)",
    "CREATE VIRTUAL TABLE words USING fts5(message, content='lines', content_rowid='id')",
    f"PRAGMA user_version = {VERSION}",
)
# Another process that writes has its transaction done within this.
_BUSY_S: Final = 30.0
# Words, and phrases in quotes; a star at the end stands for any ending.
_TERM: Final = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')


class IndexUnusable(OttlaError):
    """The file cannot be used as an index."""


class TopicId(NamedTuple):
    """A topic, distinct from others of its name: in another cluster, or recreated after this one was deleted.

    `id` is all zeros where the brokers give topics none (before Apache Kafka 2.8).
    """

    cluster_id: str
    topic: str
    id: UUID


class Position(NamedTuple):
    """How far a partition was indexed: `next_offset` is the first that was not.  `row` is its place in the file."""

    row: int
    topic: TopicId
    partition: int
    next_offset: int


class IndexedLine(NamedTuple):
    line: LogLine
    offset: int


class Advance(NamedTuple):
    """The lines of a partition between two offsets; those that are no log lines, or are gone, are not among them."""

    position: Position
    next_offset: int
    lines: Sequence[IndexedLine]


class Hit(NamedTuple):
    """A line that was found, and where it was read."""

    line: LogLine
    topic: str
    partition: int
    offset: int


class LogIndex:
    """An index in the file `path`; one that is only read (`has_writes=False`) must be there.

    One process writes (a second one is refused when it is about to index what the first has indexed), and any number
    of processes search meanwhile: SQLite's write-ahead log lets them see what was committed.
    """

    def __init__(self, path: Path, *, has_writes: bool) -> None:
        if not has_writes and not path.exists():
            raise IndexUnusable(f"there is no index at {path}", hint="`run` makes it")
        self._path = path
        # A reader that could not write at all could not read the log of one that was killed either.
        mode = "rwc" if has_writes else "rw"
        self._database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_BUSY_S, isolation_level=None
        )
        try:
            if has_writes:
                self._prepare()
            else:
                self._database.execute("PRAGMA query_only = ON")
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise IndexUnusable(f"{path} cannot be used: {error}", hint="is it an index of this program?") from error
        except BaseException:
            self._database.close()
            raise
        if version != VERSION:
            self._database.close()
            raise IndexUnusable(
                f"{path} is no index of this program", hint="name another file, or recreate it with `run`"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def begin(self, topic: TopicId, partition: int, first_offset: int) -> Position:
        """Where reading the partition continues; one that the index does not know begins at `first_offset`."""
        key = (topic.cluster_id, topic.topic, str(topic.id), partition)
        with self._transaction():
            self._database.execute(
                "INSERT OR IGNORE INTO positions (cluster_id, topic, topic_id, partition, next_offset) "
                "VALUES (?, ?, ?, ?, ?)",
                (*key, first_offset),
            )
            row, next_offset = self._database.execute(
                "SELECT id, next_offset FROM positions "
                "WHERE cluster_id = ? AND topic = ? AND topic_id = ? AND partition = ?",
                key,
            ).fetchone()
        return Position(row, topic, partition, next_offset)

    def add(self, advances: Sequence[Advance]) -> list[Position]:
        """Lines and offsets in one transaction; gives the positions after it."""
        with self._transaction():
            for advance in advances:
                self._move(advance)
                for line, offset in advance.lines:
                    added = self._database.execute(
                        "INSERT INTO lines (at_ms, level, service, message, position, offset) "
                        "VALUES (?, ?, ?, ?, ?, ?)",
                        (*line, advance.position.row, offset),
                    )
                    self._database.execute(
                        "INSERT INTO words (rowid, message) VALUES (?, ?)", (added.lastrowid, line.message)
                    )
        return [advance.position._replace(next_offset=advance.next_offset) for advance in advances]

    def positions(self) -> list[Position]:
        rows = self._database.execute(
            "SELECT id, cluster_id, topic, topic_id, partition, next_offset FROM positions "
            "ORDER BY topic, topic_id, partition"
        )
        return [
            Position(row, TopicId(cluster_id, topic, UUID(topic_id)), partition, next_offset)
            for row, cluster_id, topic, topic_id, partition, next_offset in rows
        ]

    def lines_count(self, position: Position | None = None) -> int:
        """Of one partition, or of all."""
        which, values = ("", ()) if position is None else (" WHERE position = ?", (position.row,))
        (count,) = self._database.execute(f"SELECT count(*) FROM lines{which}", values).fetchone()
        return int(count)

    def search(
        self,
        words: str,
        *,
        service: str | None = None,
        level: str | None = None,
        since_ms: int | None = None,
        limit: int = 20,
    ) -> list[Hit]:
        """The newest lines that have all words of their message; all lines when there are no words."""
        terms = match_terms(words)
        conditions = {
            "words MATCH ?": terms or None,
            "lines.service = ?": service,
            "lines.level = ?": level and level.upper(),
            "lines.at_ms >= ?": since_ms,
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        found = self._database.execute(
            "SELECT lines.at_ms, lines.level, lines.service, lines.message, "
            "positions.topic, positions.partition, lines.offset "
            f"FROM {'words JOIN lines ON lines.id = words.rowid' if terms else 'lines'} "
            "JOIN positions ON positions.id = lines.position "
            f"WHERE {' AND '.join(given) or 'TRUE'} ORDER BY lines.at_ms DESC, lines.id DESC LIMIT ?",
            (*given.values(), limit),
        )
        return [Hit(LogLine(*row[:4]), *row[4:]) for row in found]

    def _prepare(self) -> None:
        _require_fts5(self._database)
        self._database.execute("PRAGMA journal_mode = WAL")
        # After a power loss the last transactions may be missing, lines and offsets together: they are read again.
        self._database.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                for statement in _SCHEMA:
                    self._database.execute(statement)

    def _move(self, advance: Advance) -> None:
        position = advance.position
        moved = self._database.execute(
            "UPDATE positions SET next_offset = ? WHERE id = ? AND next_offset = ?",
            (advance.next_offset, position.row, position.next_offset),
        )
        if moved.rowcount != 1:
            raise IndexUnusable(
                f"{position.topic.topic}-{position.partition} was indexed beyond {position.next_offset} by another "
                "process meanwhile",
                hint=f"let one process write {self._path}",
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # Immediate: two writers wait for each other here, and not with what they have read.
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def match_terms(words: str) -> str:
    """FTS5's expression for all these words, in any order; what has neither letters nor digits is left out.

    `"no answer" time*` is a phrase, and the words that begin with `time`.
    """
    terms = []
    for match in _TERM.finditer(words):
        phrase, star, word = match.groups()
        text = word.rstrip("*") if phrase is None else phrase
        ending = "*" if star or (word is not None and word.endswith("*")) else ""
        if any(each.isalnum() for each in text):
            terms.append(f'"{text}"{ending}')
    return " AND ".join(terms)


def _require_fts5(database: sqlite3.Connection) -> None:
    try:
        database.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(text)")
    except sqlite3.OperationalError as error:
        if "fts5" not in str(error):
            raise
        raise IndexUnusable(
            f"SQLite {sqlite3.sqlite_version} of this Python has no FTS5, which searches by words",
            hint="use a Python whose SQLite was compiled with it: those of python.org, Debian and conda are",
        ) from error
    database.execute("DROP TABLE temp.probe")

"""The search index without a broker: lines, words, and files that cannot be used."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from examples.search_index.__main__ import program
from examples.search_index.index import Advance, IndexedLine, IndexUnusable, LogIndex, TopicId, match_terms
from examples.search_index.log_line import LogLine, log_line_of

TOPIC = TopicId("cluster", "logs", UUID(int=1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs.db"


def test_line_has_its_own_time_and_without_a_zone_it_is_utc() -> None:
    for time in ("2011-06-12T09:00:00Z", "2011-06-12T09:00:00", "2011-06-12T11:00:00+02:00"):
        value = f'{{"time": "{time}", "level": "warn", "service": "cart", "message": "slow", "host": 7}}'
        assert log_line_of(value.encode()) == LogLine(1_307_869_200_000, "WARN", "cart", "slow")


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[1]",
        b"\xff",
        b'{"time": 7, "level": "INFO", "service": "cart", "message": "slow"}',
        b'{"time": "soon", "level": "INFO", "service": "cart", "message": "slow"}',
        b'{"time": "2011-06-12", "level": "INFO", "service": "cart"}',
        b'{"time": "2011-06-12", "level": "INFO", "service": "cart", "message": "\\ud800"}',
    ],
)
def test_malformed_line_is_a_value_error(value: bytes | None) -> None:
    with pytest.raises(ValueError):
        log_line_of(value)


def test_words_are_text_with_any_content(path: Path) -> None:
    lines = ["no answer from 10.0.0.1", "answer AND no", "timeout"]
    with LogIndex(path, has_writes=True) as index:
        add(index, *lines)
        assert found(index, "no answer") == {lines[0], lines[1]}
        assert found(index, '"no answer"') == {lines[0]}
        assert found(index, "10.0.0.1 -") == {lines[0]}
        assert found(index, "AND") == {lines[1]}
        assert found(index, "time*") == {lines[2]}
        assert found(index, 'answer"') == {lines[0], lines[1]}
        assert found(index, "") == set(lines)


def test_terms_are_quoted() -> None:
    assert match_terms('payment* "no answer" NEAR(a') == '"payment"* AND "no answer" AND "NEAR(a"'


def test_offset_that_another_process_has_passed_is_refused_and_adds_no_line(path: Path) -> None:
    with LogIndex(path, has_writes=True) as index, LogIndex(path, has_writes=True) as other:
        position = index.begin(TOPIC, 0, 0)
        advance = Advance(position, 1, [IndexedLine(LogLine(1, "INFO", "cart", "once"), 0)])
        other.add([advance])
        with pytest.raises(IndexUnusable, match="by another process"):
            index.add([advance])
        assert index.lines_count() == 1
        assert index.begin(TOPIC, 0, 0).next_offset == 1


def test_python_without_fts5_gets_an_error_that_names_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutFts5(sqlite3.Connection):
        def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
            if "fts5" in statement:
                raise sqlite3.OperationalError("no such module: fts5")
            return super().execute(statement, values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kw: connect(*args, **kw, factory=WithoutFts5))
    with pytest.raises(IndexUnusable, match="no FTS5"):
        LogIndex(path, has_writes=True)


def test_file_that_is_no_index_is_refused(path: Path) -> None:
    with pytest.raises(IndexUnusable, match="there is no index"):
        LogIndex(path, has_writes=False)
    path.write_text("some notes of a user, long enough to be no database of SQLite" * 20)
    with pytest.raises(IndexUnusable, match="cannot be used"):
        LogIndex(path, has_writes=True)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE somebodys (thing TEXT)")
    other.close()
    with pytest.raises(IndexUnusable, match="no index of this program"):
        LogIndex(path, has_writes=True)


def test_line_that_is_found_is_printed_as_one_line(path: Path) -> None:
    with LogIndex(path, has_writes=True) as index:
        add(index, "gone\n\x1b[2J")
    told = CliRunner().invoke(program, ["query", "gone", "--index", str(path)])
    assert told.output.endswith(" INFO cart: gone\\n\\x1b[2J\n")
    told = CliRunner().invoke(program, ["query", "gone", "--index", str(path), "--json"])
    assert json.loads(told.output)["message"] == "gone\n\x1b[2J"


def add(index: LogIndex, *messages: str) -> None:
    lines = [IndexedLine(LogLine(at, "INFO", "cart", message), at) for at, message in enumerate(messages)]
    index.add([Advance(index.begin(TOPIC, 0, 0), len(lines), lines)])


def found(index: LogIndex, words: str) -> set[str]:
    return {hit.line.message for hit in index.search(words)}

"""The embedded tree's file: what it keeps, and which files it refuses."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.coordination.embedded.errors import (
    TreeStoreDamaged,
    TreeStoreError,
    TreeStoreFailed,
    TreeStoreForeign,
    TreeStoreFull,
    TreeStoreLocked,
    TreeStoreLost,
    TreeStoreOtherVersion,
)
from ottla.coordination.embedded.journal import Journal, JournalEntry, entry_of
from ottla.coordination.embedded.node_table import NodeTable, StoredNode, TreeChange

NODE = StoredNode(b"data", 3, 10, 12, 1_700_000_000_000)
EPHEMERAL = NODE._replace(ephemeral_owner=7)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tree.sqlite")


@pytest.fixture
def journal(path: str) -> Iterator[Journal]:
    opened = Journal.open(path)
    yield opened
    opened.close()


def putting(*paths: str, ceiling: int | None = 100) -> JournalEntry:
    return entry_of(TreeChange(dict.fromkeys(paths, NODE), set()), NodeTable(), ceiling)


def write(path: str, *nodes: str) -> None:
    journal = Journal.open(path)
    journal.commit(putting(*nodes))
    journal.close()


def tamper(path: str, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def load(path: str) -> None:
    opened = Journal.open(path)
    try:
        opened.load()
    finally:
        opened.close()


def refusal(path: str) -> TreeStoreError:
    """How opening and loading fails."""
    with pytest.raises(TreeStoreError) as failure:
        load(path)
    assert path in str(failure.value)
    assert failure.value.hint is not None
    return failure.value


def test_new_file_holds_only_the_root(journal: Journal) -> None:
    table, ceiling = journal.load()
    assert (len(table), ceiling) == (1, 0)


def test_committed_nodes_and_ceiling_are_loaded_again(path: str) -> None:
    write(path, "/a", "/a/b")
    journal = Journal.open(path)
    table, ceiling = journal.load()
    journal.close()
    assert dict(table.items()) | {"/": NODE} == {"/": NODE, "/a": NODE, "/a/b": NODE}
    assert list(table.children("/a")) == ["b"]
    assert ceiling == 100


def test_commits_of_a_disk_that_is_not_synced_are_loaded_again(path: str) -> None:
    journal = Journal.open(path, is_synced=False)
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (0,)  # OFF
    journal.commit(putting("/a"))
    journal.close()
    write(path, "/b")
    journal = Journal.open(path)
    table, _ = journal.load()
    journal.close()
    assert {"/a", "/b"} <= dict(table.items()).keys()


def test_every_commit_is_synced_and_no_other_user_may_read_the_file(path: str, journal: Journal) -> None:
    pragma = journal._connection.execute
    assert pragma("PRAGMA journal_mode").fetchone() == ("wal",)
    assert pragma("PRAGMA synchronous").fetchone() == (2,)  # FULL: the log is synced at each commit
    assert pragma("PRAGMA locking_mode").fetchone() == ("exclusive",)
    journal.commit(putting("/a"))
    for name in (path, path + "-wal"):
        assert stat.S_IMODE(os.stat(name).st_mode) == 0o600


def test_ephemeral_nodes_have_no_rows_and_replace_those_of_persistent_ones() -> None:
    committed = NodeTable()
    for name in ("/was-persistent", "/gone"):
        committed.put(name, NODE)
    committed.put("/was-ephemeral", EPHEMERAL)
    nodes: dict[str, StoredNode | None] = {
        "/new": EPHEMERAL,
        "/was-persistent": EPHEMERAL,
        "/gone": None,
        "/was-ephemeral": None,
        "/never-seen": None,
    }
    entry = entry_of(TreeChange(nodes, set()), committed, None)
    assert not entry.is_empty
    assert (entry.put, entry.remove) == ([], [("/was-persistent",), ("/gone",)])
    assert entry_of(TreeChange({"/new": EPHEMERAL, "/was-ephemeral": None}, set()), committed, None).is_empty


def test_second_opener_is_kept_out_while_the_file_is_open(path: str, journal: Journal) -> None:
    with pytest.raises(TreeStoreLocked) as failure:
        Journal.open(path)
    assert "another broker" in str(failure.value.hint)
    journal.commit(putting("/a"))  # the first is not disturbed


def test_file_of_another_kind_is_refused_and_not_touched(path: str) -> None:
    content = b"this is a user's letter, not a database" * 100
    Path(path).write_bytes(content)
    assert isinstance(refusal(path), TreeStoreForeign)
    assert Path(path).read_bytes() == content


def test_database_of_another_program_is_refused_and_not_touched(path: str) -> None:
    tamper(path, "CREATE TABLE theirs (x)")
    before = Path(path).read_bytes()
    assert isinstance(refusal(path), TreeStoreForeign)
    assert Path(path).read_bytes() == before


def test_file_of_a_later_format_is_refused(path: str) -> None:
    write(path, "/a")
    tamper(path, "PRAGMA user_version = 2")
    error = refusal(path)
    assert isinstance(error, TreeStoreOtherVersion)
    assert "format 2" in str(error)


def test_missing_directory_is_reported_with_a_hint(tmp_path: Path) -> None:
    assert "data directory" in str(refusal(str(tmp_path / "missing" / "tree.sqlite")).hint)


def test_changed_bytes_of_a_node_are_found_by_its_checksum(path: str) -> None:
    write(path, "/a")
    content = Path(path).read_bytes()
    assert content.count(b"data") >= 1
    position = content.rindex(b"data")
    Path(path).write_bytes(content[:position] + b"dbta" + content[position + 4 :])
    error = refusal(path)
    assert isinstance(error, TreeStoreDamaged)
    assert "/a" in str(error)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE node SET mzxid = 11", "/a"),
        ("UPDATE node SET path = '/b'", "/b"),
        ("DELETE FROM ceiling", "change id"),
        ("UPDATE ceiling SET zxid = 5", "change id"),
        ("DELETE FROM node WHERE path = '/a'", "/a is missing"),
    ],
)
def test_rows_that_do_not_fit_together_are_damage(path: str, statement: str, problem: str) -> None:
    write(path, "/a", *(["/a/b"] if "missing" in problem else []))
    tamper(path, statement)
    error = refusal(path)
    assert isinstance(error, TreeStoreDamaged)
    assert problem in str(error)


def test_file_cut_short_is_refused(path: str) -> None:
    write(path, *(f"/n{number}" for number in range(500)))
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    assert isinstance(refusal(path), TreeStoreDamaged)


def test_overwritten_pages_are_refused(path: str) -> None:
    write(path, *(f"/n{number}" for number in range(500)))
    content = bytearray(Path(path).read_bytes())
    content[4096:8192] = b"\xa5" * 4096
    Path(path).write_bytes(content)
    assert isinstance(refusal(path), TreeStoreDamaged)


def test_full_disk_refuses_the_commit_whole_and_later_ones_work(path: str, journal: Journal) -> None:
    journal.commit(putting("/a"))
    (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
    journal._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(TreeStoreFull):
        journal.commit(putting("/a/b", *(f"/a/{number}" for number in range(500)), ceiling=999))
    table, ceiling = journal.load()
    assert (table.find("/a/b"), ceiling) == (None, 100)
    journal._connection.execute("PRAGMA max_page_count = 100000")
    journal.commit(putting("/a/b"))
    assert journal.load()[0].find("/a/b") == NODE


def test_commit_on_a_full_disk_is_tried_once_more_when_there_is_room_now(path: str) -> None:
    answers = [False, True]
    journal = Journal.open(path, make_room=lambda: make_room(answers.pop()))

    def make_room(has_room: bool) -> bool:
        if has_room:
            journal._connection.execute("PRAGMA max_page_count = 100000")
        return has_room

    def fill() -> None:
        (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")

    journal.commit(putting("/a"))
    fill()
    journal.commit(putting(*(f"/a/{number}" for number in range(500)), ceiling=999))
    fill()
    with pytest.raises(TreeStoreFull):
        journal.commit(putting(*(f"/a/c{number}" for number in range(500)), ceiling=1_000))
    assert not answers
    assert journal.load()[1] == 999
    journal.close()


def test_commit_that_fails_in_another_way_is_of_unknown_outcome(journal: Journal) -> None:
    journal._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(TreeStoreFailed):
        journal.commit(putting("/a"))


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_file_that_must_be_there_is_not_recreated(path: str, content: bytes | None) -> None:
    if content is not None:
        Path(path).write_bytes(content)
    Path(path + "-wal").write_bytes(b"what remains of it")
    before = {name: Path(path).with_name(name).read_bytes() for name in os.listdir(os.path.dirname(path))}
    with pytest.raises(TreeStoreLost):
        Journal.open(path, may_be_new=False)
    assert {name: Path(path).with_name(name).read_bytes() for name in os.listdir(os.path.dirname(path))} == before


def test_file_without_its_schema_is_not_recreated(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert os.path.getsize(path) > 0
    with pytest.raises(TreeStoreLost):
        Journal.open(path, may_be_new=False)

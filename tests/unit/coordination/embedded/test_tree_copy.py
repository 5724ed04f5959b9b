"""Copies of a tree file that a journal has open: each is one whole state, with commits in progress."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ottla.coordination.embedded import tree_copy
from ottla.coordination.embedded.errors import TreeStoreDamaged, TreeStoreLost
from ottla.coordination.embedded.journal import Journal, JournalEntry, entry_of
from ottla.coordination.embedded.node_table import NodeTable, StoredNode, TreeChange
from ottla.coordination.embedded.tree_copy import copy_tree


def entry(number: int, paths_count: int = 5) -> JournalEntry:
    """All nodes of a commit have its number: a copy that mixes two commits shows it."""
    node = StoredNode(b"%d " % number * 300, number, number, number, 1_000)
    return entry_of(TreeChange({f"/n{index}": node for index in range(paths_count)}, set()), NodeTable(), number)


def numbers_in(path: Path) -> set[int]:
    journal = Journal.open(str(path), may_be_new=False)
    table, ceiling = journal.load()
    journal.close()
    numbers = {node.version for where, node in table.items() if where != "/"}
    assert numbers == {ceiling}
    return numbers


def test_copy_of_a_tree_that_is_open_has_all_that_was_committed(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path / "tree"))
    for number in range(1, 4):
        journal.commit(entry(number))
        assert copy_tree(str(tmp_path / "tree"), str(tmp_path / "copy")) == 5
        assert numbers_in(tmp_path / "copy") == {number}
    journal.close()
    copy_tree(str(tmp_path / "tree"), str(tmp_path / "copy"))
    assert numbers_in(tmp_path / "copy") == {3}
    assert sorted(os.listdir(tmp_path)) == ["copy", "tree"]


def test_copies_beside_a_writer_that_wraps_its_log_hold_one_commit_each(tmp_path: Path) -> None:
    journal = Journal.open(str(tmp_path / "tree"))
    journal.commit(entry(1, 40))
    stop = threading.Event()
    number = 1

    def write() -> None:
        nonlocal number
        while not stop.is_set():
            number += 1
            journal.commit(entry(number, 40))

    # SQLite's objects may move between threads as long as one uses them at a time.
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen: set[int] = set()
        while len(seen) < 8:
            copy_tree(str(tmp_path / "tree"), str(tmp_path / "copy"))
            seen |= numbers_in(tmp_path / "copy")
    finally:
        stop.set()
        writer.join()
        journal.close()
    assert max(seen) <= number


def test_copy_is_repeated_when_the_log_restarts_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(str(tmp_path / "tree"))
    journal.commit(entry(1))
    copies: list[str] = []
    copy = tree_copy._copy

    def copy_and_wrap(source: str, target: str) -> None:
        copy(source, target)
        copies.append(source)
        if len(copies) == 1:
            # A checkpoint of all, and then a commit that writes over the log.
            journal._connection.execute("PRAGMA wal_checkpoint(RESTART)")
            journal.commit(entry(2))

    monkeypatch.setattr(tree_copy, "_copy", copy_and_wrap)
    copy_tree(str(tmp_path / "tree"), str(tmp_path / "copy"))
    assert numbers_in(tmp_path / "copy") == {2}
    assert len(copies) == 4, "the first pair was of two states"
    journal.close()


def test_missing_and_damaged_trees_are_named_by_the_path_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "tree"
    with pytest.raises(TreeStoreLost, match=f"{source}: is missing"):
        copy_tree(str(source), str(tmp_path / "copy"))
    Journal.open(str(source)).close()
    source.write_bytes(source.read_bytes()[:5000])
    with pytest.raises(TreeStoreDamaged, match=f"{source}: database disk image is malformed"):
        copy_tree(str(source), str(tmp_path / "copy"))

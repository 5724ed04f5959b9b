"""Histories are read while their processes write them."""

from __future__ import annotations

from pathlib import Path

from tests.history.operations import Ended, GrowingHistories, to_line


def ended(at_ns: int) -> Ended:
    return Ended("member0", at_ns)


def line(at_ns: int) -> str:
    return to_line(ended(at_ns)) + "\n"


def test_operations_that_were_added_since_the_last_reading_are_read(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(line(1))
    second.write_text(line(2))
    histories = GrowingHistories()
    assert histories.read([first, second]) == [ended(1), ended(2)]
    with first.open("a") as file:
        file.write(line(3) + line(4))
    assert histories.read([first, second]) == [ended(1), ended(3), ended(4), ended(2)]


def test_operation_is_read_when_the_end_of_its_line_is_written(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(line(1) + line(2)[:7])
    histories = GrowingHistories()
    assert histories.read([path]) == [ended(1)]
    with path.open("a") as file:
        file.write(line(2)[7:])
    assert histories.read([path]) == [ended(1), ended(2)]


def test_reading_again_finds_the_same_operations(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(line(1))
    histories = GrowingHistories()
    read = histories.read([path])
    assert histories.read([path]) == read == [ended(1)]

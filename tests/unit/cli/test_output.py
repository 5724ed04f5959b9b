from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ottla.cli.output import say, say_error, table

HOSTILE = "a\x1b[2J\nforged\r\u202e\x9b2J\udcff\u2028b"
AS_TEXT = "a\\x1b[2J\\nforged\\r\\u202e\\x9b2J\\udcff\\u2028b"


def test_line_stays_one_line_whatever_it_holds(capfd: pytest.CaptureFixture[str]) -> None:
    say(f"group {HOSTILE}", "b\tc")
    say_error(HOSTILE, HOSTILE)
    assert capfd.readouterr() == (f"group {AS_TEXT}\nb\tc\n", f"error: {AS_TEXT}\nhint: {AS_TEXT}\n")


def test_table_pads_all_columns_but_the_last() -> None:
    assert table(["A", "LONG"], [("wide", None), (0, "x")]) == ["A    LONG", "wide -", "0    x"]
    assert table(["A"], []) == ["A"]


def test_cell_of_a_table_is_as_wide_as_it_is_shown() -> None:
    assert table(["A", "B"], [("x\n\ty", "z")]) == ["A      B", "x\\n\\ty z"]


def test_table_breaks_lists_at_commas_where_a_row_would_be_too_wide() -> None:
    found = table(("P", "REPLICAS", "IN-SYNC"), [(0, "1001,1002,1003", "1001"), (1, "1", "1,2")], width=20)
    assert found == [
        "P REPLICAS IN-SYNC",
        "0 1001,    1001",
        "  1002,",
        "  1003",
        "1 1        1,2",
    ]
    assert all(len(line) <= 20 for line in found)


def test_table_that_fits_is_not_broken() -> None:
    rows = [(0, "1,2,3")]
    assert table(("P", "REPLICAS"), rows, width=10) == table(("P", "REPLICAS"), rows)


def test_nothing_is_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    say()
    assert capfd.readouterr() == ("", "")


def test_error_has_the_priority_of_one_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "journal", "w+") as journal:
        monkeypatch.setattr(sys, "stderr", journal)
        found = os.fstat(journal.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        say_error("the port is taken", "choose another")
        # A terminal, or a file, to which a user has redirected it.
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
        say_error("the port is taken")
        journal.seek(0)
        assert journal.read() == "<3>error: the port is taken\n<3>hint: choose another\nerror: the port is taken\n"

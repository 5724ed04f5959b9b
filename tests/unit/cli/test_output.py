from __future__ import annotations

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

from __future__ import annotations

from website.table_cells import with_plain_bars


def test_bar_in_the_code_of_a_cell_needs_no_backslash() -> None:
    assert with_plain_bars("| `[a\\|b]` | a \\| b |\n") == "| `[a|b]` | a \\| b |\n"


def test_code_outside_of_tables_stays_as_it_is() -> None:
    assert with_plain_bars("Run `grep 'a\\|b'`.") == "Run `grep 'a\\|b'`."

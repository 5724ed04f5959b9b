"""Rows below a header, each column as wide as its widest cell: for people and `awk`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.observe.text import safe_text

NOTHING = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """None is shown as `-`; the last column is not padded.  What peers have named is escaped."""
    cells = [list(head), *([NOTHING if cell in (None, "") else safe_text(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join(
        " ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in cells
    )

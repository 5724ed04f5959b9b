"""The demo's tables in the lake, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable

# Every record, by topic and hour.
EVENTS: Final = "events"
DEAD_LETTERS: Final = "dead-letters"
TOP_PAGES: Final = "top-pages"
LATE_VIEWS: Final = "late-views"
SESSIONS: Final = "sessions"
AUDIT: Final = "audit"

# The audit's tier of what is read back from a table's files, and not by the code that wrote them.
TABLE: Final = "table"


class LakeFile(NamedTuple):
    size_bytes: int
    path: Path


def lake_files(table: Path) -> list[LakeFile]:
    """Every file that belongs to the table now, the largest first."""
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    sizes, paths = (actions.column(name).to_pylist() for name in ("size_bytes", "path"))
    return sorted((LakeFile(size, table / path) for size, path in zip(sizes, paths, strict=True)), reverse=True)


def rows_of(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a small table; none where nothing was ever written to it."""
    if not DeltaTable.is_deltatable(str(table)):
        return []
    found = DeltaTable(str(table)).to_pyarrow_table(columns=list(columns))
    return list(zip(*(found.column(name).to_pylist() for name in columns), strict=True))

"""The demo's tables in the lake, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from deltalake import DeltaTable

EVENTS: Final = "events"
MALFORMED: Final = "malformed"


class LakeFile(NamedTuple):
    size_bytes: int
    path: Path
    topic: str
    event_hour: str


def lake_files(table: Path) -> list[LakeFile]:
    """Every file that belongs to the table now, the largest first."""
    actions = DeltaTable(str(table)).get_add_actions(flatten=True)
    names = ("size_bytes", "path", "partition.topic", "partition.event_hour")
    columns = [actions.column(name).to_pylist() for name in names]
    rows = zip(*columns, strict=True)
    return sorted((LakeFile(size, table / path, topic, hour) for size, path, topic, hour in rows), reverse=True)

"""Counts that are published from a Delta table's own history."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from ottla.audit.comparison import COMPARED_MS
from ottla.audit.count import Count
from ottla.spark.audit import LoadedTable
from ottla.spark.lake.target import parse_target

WINDOW_MS = 600_000


def load(table: Path, first: int, end: int) -> None:
    """As a load commits: so many records of one window."""
    facts = {
        "ottla.window_ms": str(WINDOW_MS),
        "ottla.topic_ids": '{"clicks": "AAAAAAAAAAAAAAAAAAAABw"}',
        "ottla.first_offsets": f'{{"clicks": {{"0": {first}}}}}',
        "ottla.offsets": f'{{"clicks": {{"0": {end}}}}}',
        "ottla.window_counts": f'{{"clicks": {{"0": {end - first}}}}}',
    }
    rows = pa.table({"offset": list(range(first, end))})
    write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(custom_metadata=facts))


def test_commits_are_published_once_and_those_that_are_not_compared_any_more_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Count] = []
    monkeypatch.setattr("ottla.spark.audit.table_counts.publish", lambda _, counts, __: published.extend(counts))
    table = tmp_path / "clicks"
    load(table, 0, 3)
    load(table, 3, 8)
    committed_ms = [each["timestamp"] for each in reversed(DeltaTable(table).history())]

    def counts_published(loaded: LoadedTable, now_ms: int) -> list[int]:
        cluster: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: now_ms))
        published.clear()
        loaded.publish_counts(cluster, "ottla-audit")
        return sorted(each.records for each in published)

    loaded = LoadedTable(parse_target(table))
    assert counts_published(loaded, committed_ms[1]) == [3, 5]
    assert counts_published(loaded, committed_ms[1]) == []
    load(table, 8, 9)
    assert counts_published(loaded, committed_ms[1]) == [1]
    another = LoadedTable(parse_target(table))
    # The job of some weeks later.
    assert counts_published(another, committed_ms[1] + COMPARED_MS + 60_000) == []


def test_tell_publishes_counts_and_warns_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[Count] = []
    monkeypatch.setattr("ottla.spark.audit.table_counts.publish", lambda _, counts, __: published.extend(counts))
    table = tmp_path / "clicks"
    load(table, 0, 3)
    cluster: Any = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: DeltaTable(table).history()[0]["timestamp"]))
    with pytest.warns(DeprecationWarning, match="is named publish_counts"):
        LoadedTable(parse_target(table)).tell(cluster, "ottla-audit")
    assert [each.records for each in published] == [3]

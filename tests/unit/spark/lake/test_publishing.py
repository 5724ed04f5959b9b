"""A commit that loses races against other writers is retried after pauses."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake.lake_table import CommitConflict, CommitFacts, DataFile, TableCommit
from ottla.spark.lake.publishing import ATTEMPTS_MAX, publish, repeat_after_conflicts
from ottla.spark.lake.target import LakeTarget


class ContestedTable:
    """Its first `conflicts_count` commits meet that of another writer."""

    name = "clicks"
    location = LakeTarget("/lake/clicks", {})
    schema = pa.schema([])
    partition_by: tuple[str, ...] = ()
    widens_columns = False
    takes_empty_partitions = False

    def __init__(self, conflicts_count: int) -> None:
        self._conflicts_left = conflicts_count
        self.version = 0
        self.added: list[str] = []

    def refresh(self) -> None:
        self.version += 1

    def number_of(self, app_id: str) -> int | None:
        return None if app_id == "unknown" else 7

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        self.added += [field.name for field in fields]

    def commit(self, commit: TableCommit) -> int:
        if self._conflicts_left:
            self._conflicts_left -= 1
            raise CommitConflict("another writer was first")
        return self.version + 1

    def newest_facts(self, commits_max: int) -> list[CommitFacts]:
        return []

    def files(self) -> list[DataFile]:
        return []

    def vacuum(self, older_than_hours: float, *, dry_run: bool) -> list[str]:
        return []


def test_commit_without_a_conflict_does_not_pause() -> None:
    pauses: list[float] = []
    assert publish(ContestedTable(0), TableCommit(), {}, sleep=pauses.append) == 1
    assert pauses == []


def test_each_retry_pauses_and_the_pauses_grow_to_a_limit() -> None:
    pauses: list[float] = []
    assert publish(ContestedTable(40), TableCommit(), {}, sleep=pauses.append) == 41
    assert len(pauses) == 40
    assert all(0 <= pause <= 2.0 for pause in pauses)
    assert sum(pauses[:5]) < 1.0 < sum(pauses[20:])


def test_commit_is_refused_after_the_last_attempt() -> None:
    pauses: list[float] = []
    with pytest.raises(LakeError, match=f"{ATTEMPTS_MAX} times"):
        publish(ContestedTable(ATTEMPTS_MAX), TableCommit(), {}, sleep=pauses.append)
    assert len(pauses) == ATTEMPTS_MAX - 1


def with_a_new_column() -> TableCommit:
    return TableCommit([DataFile("a.parquet", {}, 10, 1, pa.schema([("page", pa.string())]), {})])


def test_commit_that_is_refused_adds_no_column() -> None:
    table = ContestedTable(0)
    with pytest.raises(LakeError, match="another load of these topics was committed meanwhile"):
        publish(table, with_a_new_column(), {"load": 6})
    assert table.added == []
    publish(table, with_a_new_column(), {"load": 7, "unknown": None})
    assert table.added == ["page"]


def test_change_that_meets_others_is_decided_again_by_the_table_as_it_is_then() -> None:
    table, pauses, seen = ContestedTable(3), list[float](), list[int]()

    def change() -> int:
        seen.append(table.version)
        return table.commit(TableCommit())

    assert repeat_after_conflicts(table, change, sleep=pauses.append) == 4
    assert (seen, len(pauses)) == ([0, 1, 2, 3], 3)


def test_change_that_always_meets_others_is_a_clear_error() -> None:
    table, pauses = ContestedTable(ATTEMPTS_MAX), list[float]()
    with pytest.raises(LakeError, match=f"clicks: other writers were faster {ATTEMPTS_MAX} times; try again"):
        repeat_after_conflicts(table, lambda: table.commit(TableCommit()), sleep=pauses.append)
    assert len(pauses) == ATTEMPTS_MAX - 1

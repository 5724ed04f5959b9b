"""Rows are erased by their keys from tables of both formats, on the local disk and on S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ottla.spark.dead_letters import TABLE_SCHEMA
from ottla.spark.errors import LakeError
from ottla.spark.lake import erasure
from ottla.spark.lake.compaction import compact
from ottla.spark.lake.delta_appends import append_once
from ottla.spark.lake.erasure import Erasure, erase
from ottla.spark.lake.lake_table import TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.target import LakeTarget, parse_target
from tests.integration.lake.test_lake_tables import Place


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, target: LakeTarget, tmp_path: Path) -> Place:
    return Place(target, request.param, tmp_path / "catalog.db")


def test_rows_of_the_keys_are_gone_and_the_others_and_the_numbers_stay(place: Place) -> None:
    table = place.open()
    publish(table, TableCommit(place.write(0, 1, 1, 2), numbers={"a": 4}), {})
    publish(table, TableCommit(place.write(1, 3)), {})
    kept = {file.path for file in table.files() if file.partition["event_hour"] == "1970-01-01-00"}
    done = erase(place.target, {"value": [b"1", b"3", b"9"]})
    assert (done.rows_count, done.files_count) == (4, 3)
    assert place.offsets() == [0, 2]
    again = place.open()
    assert again.number_of("a") == 4
    assert kept < {file.path for file in again.files()}
    assert erase(place.target, {"value": [b"1"]}) == Erasure(0, 0, None)
    # What they were is not in the table's log.
    assert json.loads(again.newest_facts(1)[0].facts["ottla.erased"]) == {"rows": 4, "columns": ["value"]}


def test_keys_of_several_columns_are_pairs_also_where_a_column_partitions_the_table(place: Place) -> None:
    publish(place.open(), TableCommit(place.write(0, 1, 2)), {})
    erase(place.target, {"value": [b"0", b"1"], "event_hour": ["1970-01-01-00", "1970-01-01-02"]})
    assert place.offsets() == [1, 2]
    erase(place.target, {"event_hour": ["1970-01-01-02"]})
    assert place.offsets() == [1]


def test_rows_are_erased_also_when_a_compaction_replaced_their_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.open()
    for _ in range(2):
        publish(table, TableCommit(place.write(0, 0, 5)), {})

    def publish_after_a_compaction(*arguments: Any, **named: Any) -> int:
        monkeypatch.setattr(erasure, "publish", publish)
        assert compact(place.target).files_before == 4
        return publish(*arguments, **named)

    monkeypatch.setattr(erasure, "publish", publish_after_a_compaction)
    assert erase(place.target, {"value": [b"0"]}).rows_count == 4
    assert place.offsets() == [5, 5]


def test_erasure_that_is_killed_before_its_commit_changes_nothing_and_the_next_one_completes_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.open()
    publish(table, TableCommit(place.write(0, 1, 2), numbers={"a": 4}), {})
    before = {file.path for file in table.files()}

    def die(*_arguments: Any, **_named: Any) -> int:
        raise SystemExit("killed")

    monkeypatch.setattr(erasure, "publish", die)
    with pytest.raises(SystemExit):
        erase(place.target, {"value": [b"1"]})
    monkeypatch.setattr(erasure, "publish", publish)
    again = place.open()
    assert ({file.path for file in again.files()}, again.version) == (before, table.version)
    assert place.offsets() == [0, 1, 2]
    assert erase(place.target, {"value": [b"1"]}).rows_count == 1
    assert place.offsets() == [0, 2]
    assert place.open().number_of("a") == 4


def test_letters_of_a_key_are_erased_from_the_table_of_dead_letters(tmp_path: Path) -> None:
    target = parse_target(tmp_path / "letters")
    letters = [{"topic": topic, "key": key, "offset": 4} for topic, key in (("a", b"7"), ("b", b"7"), ("b", b"8"))]
    rows = pa.Table.from_pylist(letters, TABLE_SCHEMA)
    assert append_once(target, rows, app_id="query", version=1, partition_by=("topic",))
    assert erase(target, {"key": [b"7"], "topic": ["b"]}).rows_count == 1
    assert erase(target, {"key": [b"7"]}).rows_count == 1
    # A batch that runs again does not bring them back.
    assert not append_once(target, rows, app_id="query", version=1, partition_by=("topic",))
    assert DeltaTable(target.url).to_pyarrow_table()["key"].to_pylist() == [b"8"]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "no column says"),
        ({"member": [1]}, "no column 'member'"),
        ({"offset": ["x"]}, "values of 'offset' are not int64"),
        ({"value": [None]}, "a value of 'value' is null"),
        ({"value": [b"1"], "offset": [1, 2]}, "different numbers of values"),
    ],
)
def test_keys_that_cannot_be_are_refused(tmp_path: Path, keys: dict[str, list[Any]], problem: str) -> None:
    place = Place(LakeTarget(str(tmp_path / "table"), {}), "delta", tmp_path)
    publish(place.open(), TableCommit(place.write(0)), {})
    with pytest.raises(LakeError, match=problem):
        erase(place.target, keys)
    assert place.offsets() == [0]

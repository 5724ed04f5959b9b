"""Upserts by Spark: topics of changes into tables whose rows change, read back without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ottla.spark.lake import IcebergTarget, LakeError, Loader, debezium_json, parse_target, plans
from ottla.testing import ControlledBroker, Record, produce

pytestmark = [pytest.mark.spark]

Document = dict[str, Any]


def people(records: pa.RecordBatch) -> pa.Table:
    """The key from the record's key, which a tombstone has, too."""
    documents = [json.loads(value) if value else {} for value in records.column("value").to_pylist()]
    return pa.table(
        {
            "id": pa.array([int(key) for key in records.column("key").to_pylist()], pa.int64()),
            "at": pa.array([document.get("at") for document in documents], pa.int64()),
            "name": pa.array([document.get("name") for document in documents], pa.string()),
        }
    )


def change(key: int, **document: object) -> Record:
    return Record(json.dumps(document).encode() if document else None, key=b"%d" % key)


def rows(target: Path, *columns: str) -> dict[int, tuple[object, ...]]:
    found = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    by_key = {row["id"]: tuple(row[name] for name in columns) for row in found}
    assert len(by_key) == len(found), "a key has two rows"
    return by_key


@pytest.fixture
def many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "ROWS_PER_TASK_MIN", 20)


@pytest.mark.usefixtures("many_commits")
def test_changes_and_tombstones_leave_a_row_for_each_key_in_tables_of_both_formats(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ControlledBroker() as broker, broker.namespace() as topics:
        topic = topics.topic("people", partitions=2)
        changes = [
            change(number % 37, name=f"name {number}") if number % 5 else change(number % 37) for number in range(300)
        ]
        produce(topic, changes)
        expected = {}
        for number in range(300):
            expected[number % 37] = f"name {number}" if number % 5 else None
        present = {key: (name,) for key, name in expected.items() if name is not None}

        settings = {"mode": "upsert", "keys": ("id",), "buckets": 3, "decode": people, "rows_per_commit": 90}
        loader = Loader(spark, broker.bootstrap, str(topic), tmp_path / "lake", **settings)  # type: ignore[arg-type]
        loaded = loader.load()
        assert (loaded.rows_count, loaded.commits_count, loader.load().rows_count) == (300, 4, 0)
        assert rows(tmp_path / "lake", "name") == present

        place = IcebergTarget("lake.people", parse_target(tmp_path / "iceberg"))
        Loader(spark, broker.bootstrap, str(topic), place, **settings).load()  # type: ignore[arg-type]
        table: Any = place.open(None)
        found = table._table.scan().to_arrow().to_pylist()
        assert {row["id"]: (row["name"],) for row in found} == present
        assert len(found) == len(present)


def test_a_late_event_changes_nothing_and_does_not_bring_back_what_was_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ControlledBroker() as broker, broker.namespace() as topics:
        topic = topics.topic("people")
        loader = Loader(
            spark,
            broker.bootstrap,
            str(topic),
            tmp_path / "lake",
            mode="upsert",
            keys=("id",),
            sequence_by="at",
            decode=people,
        )
        produce(topic, [change(1, at=5, name="five"), change(2, at=5, name="five"), change(2)])
        loader.load()
        produce(topic, [change(1, at=4, name="four"), change(2, at=4, name="four"), change(3, at=1, name="one")])
        loader.load()
        assert rows(tmp_path / "lake", "name", "deleted") == {
            1: ("five", False),
            2: (None, True),
            3: ("one", False),
        }


def test_a_history_of_debezium_goes_past_tombstones(spark: SparkSession, tmp_path: Path) -> None:
    """Also in a commit that has nothing else."""
    with ControlledBroker() as broker, broker.namespace() as topics:
        topic = topics.topic("people")
        loader = Loader(
            spark,
            broker.bootstrap,
            str(topic),
            tmp_path / "lake",
            mode="history",
            keys=("id",),
            sequence_by="source_lsn",
            columns=(),
            decode=debezium_json(pa.schema([("id", pa.int64())]), ["id"], {"lsn": pa.int64()}),
        )
        key = b'{"id": 1}'
        created, deleted = (
            json.dumps({"op": op, "after": after, "source": {"lsn": lsn}}).encode()
            for op, after, lsn in (("c", {"id": 1}, 5), ("d", None, 6))
        )
        produce(topic, [Record(created, key=key), Record(deleted, key=key), Record(None, key=key)])
        loader.load()
        produce(topic, [Record(None, key=key)])
        assert loader.load().left_count == 0
        found = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table(columns=["valid_from", "valid_to", "deleted"])
        assert found.sort_by("valid_from").to_pylist() == [
            {"valid_from": 5, "valid_to": 6, "deleted": False},
            {"valid_from": 6, "valid_to": 6, "deleted": True},
        ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"mode": "replace"}, "mode is 'replace'"),
        ({"keys": ("id",)}, "are of upserts"),
        ({"mode": "upsert", "partition_by": ("topic",)}, "partitioned by buckets"),
        ({"mode": "upsert", "topics": ["a", "b"]}, "reads one topic"),
    ],
)
def test_arguments_that_do_not_suit_the_mode_are_refused(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], problem: str
) -> None:
    given = {"topics": "a", **arguments}
    with pytest.raises(LakeError, match=problem):
        Loader(spark, "localhost:1", given.pop("topics"), tmp_path / "lake", **given)

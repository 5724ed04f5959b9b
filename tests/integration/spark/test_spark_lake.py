"""Loads into a Delta table; the table is read back without Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss, SparkOptionError
from ottla.spark.lake import LakeError, LakeLoad, load_topic_to_lake
from ottla.spark.lake import load as lake
from ottla.spark.lake.load import Loader
from ottla.spark.lake.plans import TopicKeys
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.rows import RowShape
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop]

HOUR_MS = 3_600_000
# 2011-06-12 00:00 UTC, in the days of the paper.
DAY_MS = 1_307_836_800_000


def events(count: int, hour: int, first: int = 0, partition: int = 0) -> list[Message]:
    return [
        Message(b"k", b"%d" % index, partition=partition, timestamp_ms=DAY_MS + hour * HOUR_MS + index)
        for index in range(first, first + count)
    ]


def rows(target: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    return found


def counts(target: Path) -> dict[tuple[str, str], int]:
    return dict(Counter((str(row["topic"]), str(row["event_hour"])) for row in rows(target)))


def test_records_are_loaded_by_topic_and_hour_and_a_rerun_loads_nothing_twice(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    other = f"{topic}-other"
    peer.create_topic(other, 1)
    peer.produce(topic, events(5, hour=9) + events(3, hour=10, partition=1))
    peer.produce(other, events(2, hour=9))
    target = tmp_path / "lake"

    first = load_topic_to_lake(spark, peer.bootstrap, [topic, other], target)
    assert first.rows_count == 10
    assert first.next_offsets == {
        TopicPartition(topic, 0): 5,
        TopicPartition(topic, 1): 3,
        TopicPartition(other, 0): 2,
    }
    expected = {(topic, "2011-06-12-09"): 5, (topic, "2011-06-12-10"): 3, (other, "2011-06-12-09"): 2}
    assert counts(target) == expected

    again = load_topic_to_lake(spark, peer.bootstrap, [topic, other], target)
    assert (again.rows_count, again.table_version) == (0, None)
    assert counts(target) == expected

    peer.produce(topic, events(4, hour=10, first=5))
    more = load_topic_to_lake(spark, peer.bootstrap, [topic, other], target)
    assert more.rows_count == 4
    assert counts(target) == expected | {(topic, "2011-06-12-10"): 7}
    places = [(row["topic"], row["partition"], row["offset"]) for row in rows(target)]
    assert len(set(places)) == len(places) == 14


def test_table_is_partitioned_by_a_column_of_numpy_that_has_another_type_for_no_records(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    def typed(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"is_odd": pa.array([int(value) % 2 for value in records.column("value").to_pylist()])})

    def by_numpy(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"is_odd": np.array([int(value) % 2 for value in records.column("value").to_pylist()])})

    schema = RowShape().first_schema.append(pa.field("is_odd", pa.int64()))
    target, by = tmp_path / "lake", ("topic", "is_odd")
    DeltaTable.create(str(target), schema, partition_by=list(by))
    for count, decode in enumerate((typed, by_numpy), start=1):
        peer.produce(topic, events(3, hour=9))
        assert Loader(spark, peer.bootstrap, topic, target, partition_by=by, decode=decode).load().rows_count == 3
        assert Counter(row["is_odd"] for row in rows(target)) == {0: 2 * count, 1: count}


def test_the_event_time_may_be_inside_the_value(spark: SparkSession, peer: Peer, topic: str, tmp_path: Path) -> None:
    late = json.dumps({"at_ms": DAY_MS + 3 * HOUR_MS}).encode()
    moment = DAY_MS + 9 * HOUR_MS
    peer.produce(
        topic,
        [
            Message(None, late, partition=0, timestamp_ms=moment),
            Message(None, b"malformed", partition=0, timestamp_ms=moment),
        ],
    )
    expression = "timestamp_millis(CAST(get_json_object(CAST(value AS STRING), '$.at_ms') AS BIGINT))"
    load_topic_to_lake(spark, peer.bootstrap, topic, tmp_path / "lake", event_time=expression)
    assert counts(tmp_path / "lake") == {(topic, "2011-06-12-03"): 1, (topic, "2011-06-12-09"): 1}


def test_an_event_time_that_spark_cannot_compute_is_a_wrong_option(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    peer.produce(topic, events(1, hour=9))
    for expression in ("no_such_column", "CAST(value AS"):
        with pytest.raises(SparkOptionError, match=r"is no expression over the records: \[[A-Z_]+") as refused:
            load_topic_to_lake(spark, peer.bootstrap, topic, tmp_path / "lake", event_time=expression)
        assert len(str(refused.value).splitlines()) == 1, "no plan"


def test_a_load_that_dies_before_its_commit_leaves_nothing_and_can_run_again(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.produce(topic, events(5, hour=9))
    target = tmp_path / "lake"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lake, "publish", die)
        with pytest.raises(KeyboardInterrupt):
            load_topic_to_lake(spark, peer.bootstrap, topic, target)
    assert list(target.rglob("*.parquet")), "the files were written"
    assert rows(target) == []
    assert load_topic_to_lake(spark, peer.bootstrap, topic, target).rows_count == 5
    assert counts(target) == {(topic, "2011-06-12-09"): 5}


def test_of_two_loads_at_once_one_is_refused(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.produce(topic, events(5, hour=9))
    target = tmp_path / "lake"

    def publish_after_another(*arguments: object) -> object:
        monkeypatch.setattr(lake, "publish", publish)
        load_topic_to_lake(spark, peer.bootstrap, topic, target)
        return publish(*arguments)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(lake, "publish", publish_after_another)
    with pytest.raises(LakeError, match="another load"):
        load_topic_to_lake(spark, peer.bootstrap, topic, target)
    assert counts(target) == {(topic, "2011-06-12-09"): 5}


def test_records_deleted_between_two_loads_are_reported(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    peer.produce(topic, events(3, hour=9))
    load_topic_to_lake(spark, peer.bootstrap, topic, tmp_path / "lake")
    peer.produce(topic, events(5, hour=9, first=3))
    peer.delete_records_before(topic, 0, 6)
    with pytest.raises(DataLoss, match="names offset 3"):
        load_topic_to_lake(spark, peer.bootstrap, topic, tmp_path / "lake")


def recreate(peer: Peer, topic: str) -> None:
    peer.delete_topic(topic)
    peer.create_topic(topic, 2)


def load_by_name(
    spark: SparkSession, peer: Peer, topic: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> LakeLoad:
    """A load that knows no topic id, as earlier versions made it."""
    with monkeypatch.context() as patch:
        patch.setattr(TopicKeys, "by_id", lambda *_: None)
        return load_topic_to_lake(spark, peer.bootstrap, topic, target)


@pytest.mark.parametrize("count", [2, 8])
def test_a_recreated_topic_is_loaded_from_its_beginning(
    count: int, spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(5, hour=9))
    assert load_topic_to_lake(spark, peer.bootstrap, topic, target).recreated_topics == set()
    recreate(peer, topic)
    peer.produce(topic, events(count, hour=10))
    load = load_topic_to_lake(spark, peer.bootstrap, topic, target)
    assert (load.rows_count, load.recreated_topics) == (count, frozenset({topic}))
    assert counts(target) == {(topic, "2011-06-12-09"): 5, (topic, "2011-06-12-10"): count}
    again = load_topic_to_lake(spark, peer.bootstrap, topic, target)
    assert (again.rows_count, again.recreated_topics) == (0, frozenset())


def test_a_table_that_knows_its_topic_by_name_is_continued_and_records_the_id(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(5, hour=9))
    assert load_by_name(spark, peer, topic, target, monkeypatch).rows_count == 5
    assert load_topic_to_lake(spark, peer.bootstrap, topic, target).rows_count == 0
    peer.produce(topic, events(2, hour=10))
    assert load_topic_to_lake(spark, peer.bootstrap, topic, target).rows_count == 2
    assert counts(target) == {(topic, "2011-06-12-09"): 5, (topic, "2011-06-12-10"): 2}
    recreate(peer, topic)
    peer.produce(topic, events(9, hour=11))
    assert load_topic_to_lake(spark, peer.bootstrap, topic, target).rows_count == 9


def test_a_log_shorter_than_a_table_that_knows_its_topic_by_name_is_reported_or_loaded_whole(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(5, hour=9))
    load_by_name(spark, peer, topic, target, monkeypatch)
    recreate(peer, topic)
    peer.produce(topic, events(3, hour=10))
    with pytest.raises(DataLoss, match="names offset 5"):
        load_topic_to_lake(spark, peer.bootstrap, topic, target)
    load = load_topic_to_lake(spark, peer.bootstrap, topic, target, options={"failOnDataLoss": "false"})
    assert load.rows_count == 3


def test_a_recreated_topic_during_a_load_has_nothing_committed(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(5, hour=9))
    write = Loader._write

    def write_from_a_new_topic(*arguments: object) -> object:
        recreate(peer, topic)
        peer.produce(topic, events(7, hour=10))
        return write(*arguments)  # type: ignore[arg-type]  # passed on as they came

    with monkeypatch.context() as patch:
        patch.setattr(Loader, "_write", write_from_a_new_topic)
        with pytest.raises(DataLoss, match="was deleted"):
            load_topic_to_lake(spark, peer.bootstrap, topic, target)
    assert rows(target) == []
    assert load_topic_to_lake(spark, peer.bootstrap, topic, target).rows_count == 7


def test_a_load_that_is_requested_to_stop_reports_the_remaining_records(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    peer.produce(topic, events(5, hour=9))
    loader = Loader(spark, peer.bootstrap, topic, tmp_path / "lake", rows_per_commit=2)
    assert loader.load(should_stop=lambda: True).left_count == 5
    asked = iter([False, True])
    stopped = loader.load(should_stop=lambda: next(asked))
    assert (stopped.rows_count, stopped.left_count) == (2, 3)
    whole = loader.load()
    assert (whole.rows_count, whole.left_count) == (3, 0)


def test_counts_are_reported_after_each_commit_and_for_earlier_commits(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.produce(topic, events(5, hour=9))
    told: list[int] = []
    monkeypatch.setattr(lake, "publish_table_counts", lambda table, _connection: told.append(table.version))
    loader = Loader(spark, peer.bootstrap, topic, tmp_path / "lake", rows_per_commit=2, tells_audit=True)
    loader.load()
    assert told == [0, 1, 2, 3]
    loader.load()
    assert told == [0, 1, 2, 3]


def test_records_of_very_many_hours_are_more_commits_and_not_more_files_in_one(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "FILES_PER_COMMIT", 20)
    peer.produce(topic, [message for hour in range(70) for message in events(1, hour, first=hour)])
    files: list[int] = []
    loader = Loader(spark, peer.bootstrap, topic, tmp_path / "lake")
    loaded = loader.load(lambda state: files.append(state.done.files_count))
    assert (loaded.rows_count, loaded.files_count) == (70, 70)
    assert files == [20, 40, 60, 70]

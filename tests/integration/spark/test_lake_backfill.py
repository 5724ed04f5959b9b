"""Hours of a table are rebuilt from the log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ottla.spark.errors import DataLoss, LakeError
from ottla.spark.lake import Loader, erase, load
from ottla.spark.lake.spark_jobs import run_job
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark]

HOUR_MS = 3_600_000
DAY_MS = 1_307_836_800_000


def events(count: int, hour: int) -> list[Message]:
    return [Message(None, b"%d" % n, partition=0, timestamp_ms=DAY_MS + hour * HOUR_MS + n) for n in range(count)]


def mark(records: pa.RecordBatch) -> pa.Table:
    return pa.table({"mark": ["new"] * records.num_rows})


def test_an_hour_is_rebuilt_once_and_rows_deleted_from_the_log_stay(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(4, hour=9) + events(3, hour=10) + events(2, hour=9))
    loader = Loader(spark, peer.bootstrap, topic, target)
    loader.load()
    peer.delete_records_before(topic, 0, 2)
    peer.produce(topic, events(5, hour=9))

    again = Loader(spark, peer.bootstrap, topic, target, decode=mark)
    with pytest.raises(LakeError, match="no whole hours"):
        again.backfill(DAY_MS, DAY_MS + 1)
    for _ in range(2):
        assert again.backfill(DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS).rows_count == 4
        rows = DeltaTable(str(target)).to_pyarrow_table()
        assert Counter(zip(rows["offset"].to_pylist(), rows["mark"].to_pylist(), strict=True)) == Counter(
            {(offset, "new" if offset in {2, 3, 7, 8} else None): 1 for offset in range(9)}
        )
    assert loader.load().rows_count == 5
    assert sorted(DeltaTable(str(target)).to_pyarrow_table()["offset"].to_pylist()) == list(range(14))


def swapped(records: pa.RecordBatch) -> pa.Array:
    """The rows of 9 o'clock move to 14, and the reverse."""
    times = records.column("timestamp").cast(pa.int64()).to_numpy() // 1000 - DAY_MS
    return pa.array([time + DAY_MS + (5 if time // HOUR_MS == 9 else -5) * HOUR_MS for time in times.tolist()])


def hours(target: Path) -> list[tuple[int, str]]:
    rows = DeltaTable(str(target)).to_pyarrow_table()
    return sorted(zip(rows["offset"].to_pylist(), rows["event_hour"].to_pylist(), strict=True))


def test_rows_whose_time_has_changed_are_lost_in_no_hour_and_twice_in_none(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(2, hour=9) + events(2, hour=14))
    Loader(spark, peer.bootstrap, topic, target).load()
    again = Loader(spark, peer.bootstrap, topic, target, event_time=swapped)
    assert again.backfill(DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS).rows_count == 2
    assert hours(target) == [(offset, "2011-06-12-14") for offset in range(4)]
    assert again.backfill(DAY_MS + 14 * HOUR_MS, DAY_MS + 15 * HOUR_MS).rows_count == 4
    assert hours(target) == [(offset, f"2011-06-12-{'14' if offset < 2 else '09'}") for offset in range(4)]


def test_records_before_the_tables_beginning_are_not_added(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(3, hour=9))
    loader = Loader(spark, peer.bootstrap, topic, target, start="latest")
    loader.load()
    peer.produce(topic, events(2, hour=9))
    assert loader.load().rows_count == 2
    assert loader.backfill(DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS).rows_count == 2
    assert [offset for offset, _ in hours(target)] == [3, 4]


def test_rows_that_were_erased_are_not_brought_back(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(3, hour=9))
    loader = Loader(spark, peer.bootstrap, topic, target)
    loader.load()
    assert erase(target, {"value": [b"1"]}).rows_count == 1
    assert loader.backfill(DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS).rows_count == 2
    assert [offset for offset, _ in hours(target)] == [0, 2]


def test_records_deleted_during_the_rebuild_stay_in_the_table_with_any_options(
    spark: SparkSession, peer: Peer, topic: str, tmp_path: Path
) -> None:
    target = tmp_path / "lake"
    peer.produce(topic, events(4, hour=9))
    loader = Loader(spark, peer.bootstrap, topic, target, options={"failOnDataLoss": "false"})
    loader.load()

    def deleted_before(*arguments: Any) -> Any:
        peer.delete_records_before(topic, 0, 2)
        return run_job(*arguments)

    with patch.object(load, "run_job", deleted_before), pytest.raises(DataLoss, match="nothing was replaced"):
        loader.backfill(DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS)
    assert [offset for offset, _ in hours(target)] == [0, 1, 2, 3]
    assert loader.backfill(DAY_MS + 9 * HOUR_MS, DAY_MS + 10 * HOUR_MS).rows_count == 2
    assert [offset for offset, _ in hours(target)] == [0, 1, 2, 3]

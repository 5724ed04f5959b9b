"""Hours of a table, made anew from the log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ottla.spark.errors import LakeError
from ottla.spark.lake import Loader
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark]

HOUR_MS = 3_600_000
DAY_MS = 1_307_836_800_000


def events(count: int, hour: int) -> list[Message]:
    return [Message(None, b"%d" % n, partition=0, timestamp_ms=DAY_MS + hour * HOUR_MS + n) for n in range(count)]


def mark(records: pa.RecordBatch) -> pa.Table:
    return pa.table({"mark": ["new"] * records.num_rows})


def test_an_hour_is_made_anew_once_and_what_the_log_has_deleted_stays(
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

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.spark.lake import files as lake_files
from ottla.spark.lake.files import FILE_SCHEMA, HOUR_US, OUT_OF_RANGE, Bucket, hour_name, split_by_bucket, write_files

# 2011-06-12 00:00 UTC.
DAY_US = 1_307_836_800_000_000


def batch(places: list[tuple[str, int]], tz: str = "UTC") -> pa.RecordBatch:
    """A row for each (topic, event time in us)."""
    count = len(places)
    times = pa.array([time for _, time in places], pa.timestamp("us", tz=tz))
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([b"%d" % index for index in range(count)], pa.binary()),
            "topic": pa.array([topic for topic, _ in places]),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": times,
            "event_time": times,
        }
    )


def buckets(rows: pa.RecordBatch) -> dict[Bucket, list[bytes]]:
    return {bucket: part.column("value").to_pylist() for bucket, part in split_by_bucket(rows)}


def test_rows_are_split_by_topic_and_utc_hour_whatever_the_sessions_time_zone() -> None:
    places = [("a", DAY_US), ("b", DAY_US), ("a", DAY_US + HOUR_US), ("a", DAY_US + HOUR_US - 1)]
    expected = {
        Bucket("a", "2011-06-12-00"): [b"0", b"3"],
        Bucket("b", "2011-06-12-00"): [b"1"],
        Bucket("a", "2011-06-12-01"): [b"2"],
    }
    assert buckets(batch(places)) == expected
    assert buckets(batch(places, tz="Asia/Kolkata")) == expected


def test_any_timestamp_has_a_bucket() -> None:
    assert hour_name(-1) == "1969-12-31-23"
    extreme = [("a", 2**63 - 1), ("a", -(2**63)), ("a", -1)]
    assert {bucket.event_hour for bucket in buckets(batch(extreme))} == {OUT_OF_RANGE, "1969-12-31-23"}


def read_back(root: Path, reports: pa.RecordBatch) -> list[bytes]:
    return sorted(
        value
        for path in reports.column("path").to_pylist()
        for value in pq.read_table(root / path)["value"].to_pylist()
    )


def test_files_hold_what_their_report_says(tmp_path: Path) -> None:
    rows = batch([("a", DAY_US), ("b", DAY_US), ("a", DAY_US)])
    (reports,) = write_files(str(tmp_path), iter([rows, rows]))
    by_topic = {report["topic"]: report for report in reports.to_pylist()}
    assert by_topic["a"]["rows_count"] == 4
    assert by_topic["a"]["path"].startswith("topic=a/event_hour=2011-06-12-00/part-")
    assert by_topic["b"]["size_bytes"] == (tmp_path / by_topic["b"]["path"]).stat().st_size
    assert pq.read_schema(tmp_path / by_topic["a"]["path"]) == FILE_SCHEMA
    assert read_back(tmp_path, reports) == sorted(rows.column("value").to_pylist() * 2)


def test_more_hours_than_open_files_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_files, "OPEN_FILES_MAX", 2)
    rows = [batch([("a", DAY_US + hour * HOUR_US)] * 3) for hour in (0, 1, 2, 0, 1, 2)]
    (reports,) = write_files(str(tmp_path), iter(rows))
    assert sum(reports.column("rows_count").to_pylist()) == 18
    assert len(read_back(tmp_path, reports)) == 18


def test_waiting_rows_are_written_before_they_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "WAITING_BYTES_MAX", 200)
    rows = [batch([("a", DAY_US), ("b", DAY_US)]) for _ in range(5)]
    (reports,) = write_files(str(tmp_path), iter(rows))
    assert sum(reports.column("rows_count").to_pylist()) == 10
    assert pq.ParquetFile(tmp_path / reports.column("path")[0].as_py()).num_row_groups > 1


def test_a_task_without_rows_reports_no_file(tmp_path: Path) -> None:
    (reports,) = write_files(str(tmp_path), iter([batch([])]))
    assert reports.num_rows == 0
    assert list(tmp_path.iterdir()) == []

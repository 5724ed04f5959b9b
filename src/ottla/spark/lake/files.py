"""The task of a lake load: writes rows to Parquet files, one directory for each topic and event hour."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.spark.arrow.columns import ARROW_TYPES

HOUR_US: Final = 3_600_000_000
# Rows are buffered until a row group is large enough; above the sum the fullest buffer is written first.
ROW_GROUP_BYTES: Final = 16 << 20
WAITING_BYTES_MAX: Final = 128 << 20
# A task with more topics and hours than this closes the least recently used file.
OPEN_FILES_MAX: Final = 64

OUT_OF_RANGE: Final = "out-of-range"

# The columns of the files; topic and hour are in the directories' names.
FILE_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", ARROW_TYPES["timestamp"]),
        pa.field("event_time", ARROW_TYPES["timestamp"]),
    ]
)
TABLE_SCHEMA: Final = FILE_SCHEMA.append(pa.field("topic", pa.string())).append(pa.field("event_hour", pa.string()))
PARTITION_COLUMNS: Final = ("topic", "event_hour")

# A task's report to the driver for each file.
REPORT_SCHEMA: Final = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("event_hour", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows_count", pa.int64()),
    ]
)
REPORT_DDL: Final = "path string, topic string, event_hour string, size_bytes bigint, rows_count bigint"


class Bucket(NamedTuple):
    """`event_hour` is UTC, as in 2011-06-12-09."""

    topic: str
    event_hour: str

    @property
    def directory(self) -> str:
        return f"topic={self.topic}/event_hour={self.event_hour}"


@dataclass(slots=True)
class _OpenFile:
    path: str
    writer: pq.ParquetWriter
    rows_count: int = 0
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0

    def write_waiting(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting), row_group_size=1 << 20)
            self.waiting.clear()
            self.waiting_bytes = 0


class LakeFiles:
    """The files of one task.  Their names are unique, so a retried task is harmless: only files that the driver commits
    belong to the table."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # In order of last use.
        self._open: dict[Bucket, _OpenFile] = {}
        self._reports: list[dict[str, object]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows with the columns of `FILE_SCHEMA` and `topic`."""
        for bucket, rows in split_by_bucket(batch):
            file = self._file(bucket)
            file.waiting.append(rows)
            file.waiting_bytes += rows.nbytes
            file.rows_count += rows.num_rows
            if file.waiting_bytes >= ROW_GROUP_BYTES:
                file.write_waiting()
        while sum(file.waiting_bytes for file in self._open.values()) > WAITING_BYTES_MAX:
            max(self._open.values(), key=lambda file: file.waiting_bytes).write_waiting()

    def close(self) -> pa.RecordBatch:
        """Finish every file; returns a row of `REPORT_SCHEMA` for each."""
        for bucket in list(self._open):
            self._finish(bucket)
        return pa.RecordBatch.from_pylist(self._reports, schema=REPORT_SCHEMA)

    def _file(self, bucket: Bucket) -> _OpenFile:
        file = self._open.pop(bucket, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(next(iter(self._open)))
            path = f"{bucket.directory}/part-{uuid.uuid4()}.parquet"
            (self._root / path).parent.mkdir(parents=True, exist_ok=True)
            file = _OpenFile(path, pq.ParquetWriter(self._root / path, FILE_SCHEMA, compression="zstd"))
        self._open[bucket] = file
        return file

    def _finish(self, bucket: Bucket) -> None:
        file = self._open.pop(bucket)
        file.write_waiting()
        file.writer.close()
        target = self._root / file.path
        self._reports.append(
            {
                "path": file.path,
                "topic": bucket.topic,
                "event_hour": bucket.event_hour,
                "size_bytes": target.stat().st_size,
                "rows_count": file.rows_count,
            }
        )


def split_by_bucket(batch: pa.RecordBatch) -> Iterator[tuple[Bucket, pa.Table]]:
    """The rows of each topic and hour, in their order, with the columns of `FILE_SCHEMA`."""
    table = pa.Table.from_batches([batch])
    rows = table.select(FILE_SCHEMA.names).cast(FILE_SCHEMA)
    topics = table.column("topic").combine_chunks().dictionary_encode()
    if isinstance(topics, pa.ChunkedArray):
        topics = topics.combine_chunks()
    hours = np.asarray(rows.column("event_time").cast(pa.int64())).astype(np.int64) // HOUR_US
    names = topics.dictionary.to_pylist()
    codes = np.asarray(topics.indices).astype(np.int64)
    # Topics and hours as one number: hours since 1970 stay far below 2^40.
    buckets = codes << 40 | (hours + (1 << 39))
    for number in np.unique(buckets).tolist():
        hour = (number & ((1 << 40) - 1)) - (1 << 39)
        chosen = np.flatnonzero(buckets == number)
        part = rows if len(chosen) == rows.num_rows else rows.take(pa.array(chosen))
        yield Bucket(names[number >> 40], hour_name(hour)), part


def hour_name(hours_since_1970: int) -> str:
    """A producer may send any timestamp: one such record must not stop the load for ever."""
    try:
        return datetime.fromtimestamp(hours_since_1970 * 3600, UTC).strftime("%Y-%m-%d-%H")
    except (ValueError, OverflowError, OSError):
        return OUT_OF_RANGE


def write_files(root: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark maps over a load's rows."""
    files = LakeFiles(Path(root))
    for batch in batches:
        if batch.num_rows:
            files.add(batch)
    yield files.close()

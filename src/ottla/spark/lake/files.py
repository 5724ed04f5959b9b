"""The files that one task writes: rows to Parquet, a directory for each partition of the table.

Their names are unique, so a repeated task is harmless: only files that the driver commits belong to the table.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.spark.lake.columns import TIMESTAMP
from ottla.spark.lake.lake_table import ColumnBounds, DataFile, PartitionValues
from ottla.spark.lake.rows import partition_type
from ottla.spark.lake.target import LakeTarget

# Rows wait until a row group is large enough; above the sum, the fullest partitions' are written first, down to half.
ROW_GROUP_BYTES: Final = 32 << 20
WAITING_BYTES_MAX: Final = 128 << 20
# Of each column of waiting rows, however few they are: objects and aligned buffers.
COLUMN_COST_BYTES: Final = 1 << 10
# So many small parts of a partition become one.
PARTS_MAX: Final = 64
_SMALL_PART_BYTES: Final = 64 << 10
# A task with more open files closes the least recently used one.
OPEN_FILES_MAX: Final = 64
TARGET_FILE_BYTES: Final = 128 << 20

# Nearly every value of these is another one, so a dictionary only costs.
_WITHOUT_DICTIONARY: Final = frozenset({"value", "offset", "timestamp", "event_time"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_DIRECTORY_NAME_MAX: Final = 100
_TASK_FILE: Final = re.compile(r"(?:^|/)part-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet$")


@dataclass(slots=True)
class _Waiting:
    """Rows of one partition and one schema that are not in a file yet."""

    partition: PartitionValues
    schema: pa.Schema
    parts: list[pa.Table] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, rows: pa.Table) -> None:
        self.parts.append(rows)
        self.size_bytes += cost_bytes(rows)
        if len(self.parts) >= PARTS_MAX and self.size_bytes < len(self.parts) * _SMALL_PART_BYTES:
            joined = pa.concat_tables(self.parts).combine_chunks()
            self.parts, self.size_bytes = [joined], cost_bytes(joined)

    def take(self) -> pa.Table:
        rows = pa.concat_tables(self.parts)
        self.parts.clear()
        self.size_bytes = 0
        return rows


@dataclass(slots=True)
class _OpenFile:
    path: str
    sink: pa.NativeFile
    writer: pq.ParquetWriter
    rows_count: int = 0


# A partition's values in the order of the table's partition columns, and the columns of its rows.
_Bucket = tuple[tuple[str | None, ...], pa.Schema]


class LakeFiles:
    """`directory`: of the partition that all rows belong to, where their columns do not say it."""

    def __init__(
        self,
        target: LakeTarget,
        partition_by: Sequence[str],
        target_file_bytes: int = TARGET_FILE_BYTES,
        *,
        directory: PartitionValues | None = None,
        compression: str = "zstd",
    ) -> None:
        self._compression = compression
        self._directory = directory
        self._target = target
        self._files = target.file_system()
        self._partition_by = tuple(partition_by)
        self._target_file_bytes = target_file_bytes
        self._waiting: dict[_Bucket, _Waiting] = {}
        self._waiting_bytes = 0
        # In order of last use.
        self._open: dict[_Bucket, _OpenFile] = {}
        self._done: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        """Rows with the table's columns, those of its partitions among them."""
        for values, part in split_by_partition(rows, self._partition_by):
            bucket = (values, part.schema)
            waiting = self._waiting.get(bucket)
            if waiting is None:
                partition = dict(zip(self._partition_by, values, strict=True))
                waiting = self._waiting[bucket] = _Waiting(partition, part.schema)
            self._waiting_bytes -= waiting.size_bytes
            waiting.add(part)
            self._waiting_bytes += waiting.size_bytes
            if waiting.size_bytes >= ROW_GROUP_BYTES:
                self._write(bucket)
            if self._waiting_bytes > WAITING_BYTES_MAX:
                self._write_fullest()

    def close(self) -> list[DataFile]:
        """Every file that was written, whole."""
        for bucket in list(self._waiting):
            self._write(bucket)
            self._finish(bucket)
        for bucket in list(self._open):
            self._finish(bucket)
        return self._done

    def _write_fullest(self) -> None:
        for bucket in sorted(self._waiting, key=lambda each: self._waiting[each].size_bytes, reverse=True):
            if self._waiting_bytes <= WAITING_BYTES_MAX // 2:
                return
            self._write(bucket)

    def _write(self, bucket: _Bucket) -> None:
        waiting = self._waiting.pop(bucket)
        self._waiting_bytes -= waiting.size_bytes
        file = self._file(bucket, waiting)
        rows = waiting.take()
        file.writer.write_table(rows, row_group_size=1 << 20)
        file.rows_count += rows.num_rows
        if file.sink.tell() >= self._target_file_bytes:
            self._finish(bucket)

    def _file(self, bucket: _Bucket, waiting: _Waiting) -> _OpenFile:
        file = self._open.pop(bucket, None)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(next(iter(self._open)))
            file = self._new_file(waiting)
        self._open[bucket] = file
        return file

    def _new_file(self, waiting: _Waiting) -> _OpenFile:
        directory = directory_of(self._directory or waiting.partition)
        path = f"{directory}part-{uuid.uuid4()}.parquet"
        if not self._target.is_s3:  # which has no directories
            self._files.create_dir(f"{self._target.root}/{directory}", recursive=True)
        sink = self._files.open_output_stream(f"{self._target.root}/{path}")
        coded = [name for name in waiting.schema.names if name not in _WITHOUT_DICTIONARY]
        writer = pq.ParquetWriter(sink, waiting.schema, compression=self._compression, use_dictionary=coded)
        return _OpenFile(path, sink, writer)

    def _finish(self, bucket: _Bucket) -> None:
        file = self._open.pop(bucket, None)
        if file is None:
            return
        file.writer.close()
        size_bytes = file.sink.tell()
        file.sink.close()
        values, schema = bucket
        bounds = bounds_of(file.writer.writer.metadata, schema)
        partition = dict(zip(self._partition_by, values, strict=True))
        self._done.append(DataFile(file.path, partition, size_bytes, file.rows_count, schema, bounds))


def cost_bytes(rows: pa.Table) -> int:
    """About what rows that wait take in memory."""
    waiting_bytes: int = rows.nbytes
    columns_count: int = rows.num_columns
    return waiting_bytes + COLUMN_COST_BYTES * columns_count


def split_by_partition(
    rows: pa.Table, partition_by: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The rows of each partition, in their order, without the partition columns, and the partition's values as text."""
    if not rows.num_rows:
        return
    stored = without_dictionaries(rows.drop_columns(list(partition_by)))
    codes: np.ndarray[tuple[int], np.dtype[np.int64]] = np.zeros(rows.num_rows, np.int64)
    values_of: list[list[str | None]] = []
    for name in partition_by:
        values, found = _coded(name, rows.column(name))
        codes = codes * len(values) + found
        values_of.append(values)
    order = np.argsort(codes, kind="stable")
    in_order = codes[order]
    bounds = [0, *(np.flatnonzero(np.diff(in_order)) + 1).tolist(), len(codes)]
    if len(bounds) > 2:
        # Rows of many chunks are taken five times as slowly.
        stored = stored.combine_chunks()
    for first, end in itertools.pairwise(bounds):
        code = int(in_order[first])
        # Copied, so that a few rows that wait do not hold all the others.
        part = stored if len(bounds) == 2 else stored.take(pa.array(order[first:end]))
        values_here: list[str | None] = []
        for values in reversed(values_of):
            code, index = divmod(code, len(values))
            values_here.append(values[index])
        yield tuple(reversed(values_here)), part


def _coded(name: str, column: pa.ChunkedArray) -> tuple[list[str | None], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The distinct values as text, and for each row the index of its value."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of a type whose chunks cannot be joined
        whole = pa.concat_arrays(whole.chunks)
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    values = [
        value_text(value.as_py()) for value in encoded.dictionary.cast(partition_type(name, encoded.dictionary.type))
    ]
    codes = np.asarray(encoded.indices.fill_null(len(values))).astype(np.int64)
    return [*values, None], codes


def value_text(value: object) -> str | None:
    """As table formats write a partition's value."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def directory_of(partition: PartitionValues) -> str:
    """Only for people: the table's log has the values themselves."""
    parts = []
    for name, value in partition.items():
        text = "null" if value is None else _UNSAFE.sub("_", value)[:_DIRECTORY_NAME_MAX] or "empty"
        parts.append(f"{_UNSAFE.sub('_', name)}={text}/")
    return "".join(parts)


def without_dictionaries(rows: pa.Table) -> pa.Table:
    """Columns of their values, as files have them."""
    fields = [
        pa.field(each.name, each.type.value_type if pa.types.is_dictionary(each.type) else each.type)
        for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def bounds_of(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, ColumnBounds]:
    """Of the columns of whole numbers, dates and times; texts' bounds may be cut, floats' ignore NaN."""
    found: dict[str, ColumnBounds] = {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        position = schema.get_field_index(name)
        if position < 0:
            continue  # inside of a list or a struct
        kind = schema.field(position).type
        statistics = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
        if any(each is None or not each.has_null_count for each in statistics):
            continue
        nulls_count = sum(each.null_count for each in statistics)
        ranges = [each for each in statistics if each.has_min_max]
        is_ordered = pa.types.is_integer(kind) or pa.types.is_date(kind) or kind == TIMESTAMP
        # A row group of nulls alone has no range.
        if is_ordered and ranges and nulls_count + sum(each.num_values for each in ranges) == metadata.num_rows:
            least, most = min(each.min_raw for each in ranges), max(each.max_raw for each in ranges)
            found[name] = ColumnBounds(nulls_count, least, most)
        else:
            found[name] = ColumnBounds(nulls_count)
    return found


def is_task_file(path: str) -> bool:
    """Whether a file has a name that tasks give."""
    return _TASK_FILE.search(path) is not None

"""A stream's sink under a Spark that passes it rows one by one: they become Arrow's batches again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.model.limits import MIB
from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.options.write_options import COLUMN_TYPES
from ottla.spark.spark_features import DataSourceStreamArrowWriter

# As many as Spark has in a batch that it passes.
ROWS_PER_BATCH: Final = 10_000
# Of keys and values, after which a batch ends: rows of 1 MiB would be 10 GiB otherwise.
BATCH_BYTES_MAX: Final = 8 * MIB
_SIZED: Final = frozenset({"key", "value"})
_ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "void": pa.null(),
    "int": pa.int32(),
    "array<struct<key:string,value:binary>>": HEADERS_TYPE,
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


class RowSink(DataSourceStreamWriter):
    """`sink`, with rows of this schema."""

    def __init__(self, sink: DataSourceStreamArrowWriter, schema: StructType) -> None:
        self._sink = sink
        self._columns = written_columns({field.name: field.dataType.simpleString() for field in schema.fields})

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._sink.write(batches_of(iterator, self._columns))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(messages, batchId)


class WrittenColumn(NamedTuple):
    """A column that the sink reads, its place in a row and its type in Spark."""

    name: str
    place: int
    kind: str


def written_columns(column_types: Mapping[str, str]) -> tuple[WrittenColumn, ...]:
    """Of a schema's names and types, in its order; the sink reads no column of another name or type."""
    return tuple(
        WrittenColumn(name, place, kind)
        for place, (name, kind) in enumerate(column_types.items())
        if kind in COLUMN_TYPES.get(name, frozenset())
    )


def batches_of(rows: Iterator[tuple[Any, ...]], columns: tuple[WrittenColumn, ...]) -> Iterator[pa.RecordBatch]:
    """The rows as Spark passes them in Arrow, with times in UTC; a row that is large ends its batch."""
    for some in _groups(rows, [column.place for column in columns if column.name in _SIZED]):
        yield pa.RecordBatch.from_arrays(
            [_column([row[column.place] for row in some], column.kind) for column in columns],
            [column.name for column in columns],
        )


def _groups(rows: Iterator[tuple[Any, ...]], sized: Sequence[int]) -> Iterator[list[tuple[Any, ...]]]:
    """Each of at most `ROWS_PER_BATCH`; the last row of one is that which brings these places to `BATCH_BYTES_MAX`.

    A text's characters count as a byte each.
    """
    some: list[tuple[Any, ...]] = []
    size_bytes = 0
    for row in rows:
        some.append(row)
        for place in sized:
            size_bytes += len(row[place] or b"")
        if len(some) == ROWS_PER_BATCH or size_bytes >= BATCH_BYTES_MAX:
            yield some
            some, size_bytes = [], 0
    if some:
        yield some


def _column(values: list[Any], kind: str) -> pa.Array:
    if kind == "timestamp":
        # In rows Spark's times have no zone, and are those of the process's own.
        values = [value.astimezone() if isinstance(value, datetime) else value for value in values]
    return pa.array(values, _ARROW_TYPES[kind])

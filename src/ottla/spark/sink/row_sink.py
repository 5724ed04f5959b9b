"""A stream's sink under a Spark that passes it rows one by one: they become Arrow's batches again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.options.write_options import COLUMN_TYPES
from ottla.spark.spark_features import DataSourceStreamArrowWriter

# As many as Spark has in a batch that it passes.
ROWS_PER_BATCH: Final = 10_000
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
    """The rows as Spark passes them in Arrow, with times in UTC."""
    while some := list(islice(rows, ROWS_PER_BATCH)):
        yield pa.RecordBatch.from_arrays(
            [_column([row[column.place] for row in some], column.kind) for column in columns],
            [column.name for column in columns],
        )


def _column(values: list[Any], kind: str) -> pa.Array:
    if kind == "timestamp":
        # In rows Spark's times have no zone, and are those of the process's own.
        values = [value.astimezone() if isinstance(value, datetime) else value for value in values]
    return pa.array(values, _ARROW_TYPES[kind])

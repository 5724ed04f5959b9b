"""Encodes Arrow batches from Spark as record batches of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock
from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.arrow.encoder import RecordColumns, as_binary, as_headers, encode_batch, row_sizes_max, split_rows
from ottla.spark.arrow.varint_columns import Ints
from ottla.spark.errors import UnencodableColumn
from ottla.spark.options.write_options import WriteOptions
from ottla.spark.sink.partitioner import partitions_of

# Spark passes 10,000 rows at a time; combining them makes fuller batches when there are many partitions.
GATHERED_BYTES: Final = 8 << 20


class EncodedBatch(NamedTuple):
    partition: TopicPartition
    records_count: int
    batch: bytearray


@dataclass(slots=True)
class _Runs:
    """The partition of each topic for the next run of rows without a key."""

    first: int
    made: dict[str, int]

    def next_of(self, topic: str) -> int:
        return self.first + self.made.get(topic, 0)

    def count(self, topic: str, runs: int) -> None:
        self.made[topic] = self.made.get(topic, 0) + runs


class RowEncoder:
    """`partitions_count` returns a topic's partition count; `first_run` spreads the tasks' first rows."""

    def __init__(
        self, options: WriteOptions, partitions_count: Callable[[str], int], first_run: int, clock: Clock
    ) -> None:
        self._options = options
        self._partitions_count = partitions_count
        self._clock = clock
        self._runs = _Runs(first_run, {})

    def encode(self, rows: Iterable[pa.RecordBatch]) -> Iterator[EncodedBatch]:
        """The rows in record batches; rows of one partition keep their order."""
        for table in gathered(rows, GATHERED_BYTES):
            for topic, columns, wanted in self._by_topic(table):
                yield from self._encode_topic(topic, columns, wanted)

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, RecordColumns, pa.Array | None]]:
        columns = self._columns(table)
        wanted = _column(table, "partition")
        if self._options.topic is not None:
            yield self._options.topic, columns, wanted
            return
        topics = _column(table, "topic")
        assert topics is not None
        if topics.null_count:
            raise UnencodableColumn("the column 'topic' is null in a row", hint="give the option 'topic', or fill it")
        for topic in pc.unique(topics).to_pylist():
            rows = np.flatnonzero(np.asarray(pc.equal(topics, topic)))
            yield topic, columns.take(rows), None if wanted is None else wanted.take(pa.array(rows))

    def _columns(self, table: pa.Table) -> RecordColumns:
        value = _column(table, "value")
        assert value is not None
        key = _column(table, "key")
        headers = _column(table, "headers")
        return RecordColumns(
            pa.nulls(len(value), pa.binary()) if key is None else as_binary(key, "key"),
            as_binary(value, "value"),
            None if headers is None or headers.null_count == len(headers) else as_headers(headers),
            self._timestamps_ms(table),
        )

    def _timestamps_ms(self, table: pa.Table) -> Ints:
        now_ms = self._clock.now_ms()
        if not self._options.keeps_timestamps:
            return np.full(table.num_rows, now_ms, np.int64)
        stamps = _column(table, "timestamp")
        assert stamps is not None
        micros = stamps.cast(pa.timestamp("us", tz=stamps.type.tz)).cast(pa.int64())
        return np.asarray(pc.fill_null(micros, now_ms * 1000)).astype(np.int64) // 1000

    def _encode_topic(self, topic: str, columns: RecordColumns, wanted: pa.Array | None) -> Iterator[EncodedBatch]:
        sizes = row_sizes_max(columns)
        partitions = self._partitions(topic, columns, sizes, wanted)
        order = np.argsort(partitions, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(partitions[order])) + 1, len(order))
        start = 0
        for end in ends.tolist():
            rows = order[start:end]
            start = end
            mine = columns.take(rows)
            place = TopicPartition(topic, int(partitions[rows[0]]))
            for part in split_rows(sizes[rows], self._options.batch_bytes_max):
                batch = mine[part]
                yield EncodedBatch(place, len(batch), encode_batch(batch, self._options.codec))

    def _partitions(self, topic: str, columns: RecordColumns, sizes: Ints, wanted: pa.Array | None) -> Ints:
        count = self._partitions_count(topic)
        run_bytes = self._options.batch_bytes_max
        keys = pa.nulls(len(sizes), pa.binary()) if self._options.ignores_keys else columns.keys
        chosen = partitions_of(keys, sizes, count, self._runs.next_of(topic), run_bytes)
        self._runs.count(topic, 1 + int(sizes.sum()) // run_bytes)
        if wanted is None:
            return chosen
        numbers = np.asarray(pc.fill_null(wanted, -1)).astype(np.int64)
        is_given = ~np.asarray(wanted.is_null())
        wrong = is_given & ((numbers < 0) | (numbers >= count))
        if wrong.any():
            raise UnencodableColumn(
                f"the column 'partition' is {numbers[wrong.argmax()]} in a row, topic {topic!r} has 0 to {count - 1}"
            )
        return np.where(is_given, numbers, chosen)


def gathered(rows: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[pa.Table]:
    """Batches combined until they reach `size_bytes`; never an empty table."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in rows:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= size_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _column(table: pa.Table, name: str) -> pa.Array | None:
    if name not in table.column_names:
        return None
    column = table.column(name).combine_chunks()
    # A chunked array without chunks combines to a chunked array in some versions of Arrow.
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    if name == "headers" and pa.types.is_null(column.type):
        return pa.nulls(len(column), HEADERS_TYPE)
    return column

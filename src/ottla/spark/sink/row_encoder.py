"""Rows of a write as record batches, each for one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import Clock
from ottla.spark.arrow.encoder import RecordRows, split_rows
from ottla.spark.arrow.key_hashes import NO_KEY
from ottla.spark.arrow.record_columns import RecordColumns, as_binary, as_headers
from ottla.spark.arrow.row_groups import by_partition, partitions_of
from ottla.spark.arrow.varint_columns import Ints
from ottla.spark.errors import UnencodableColumn
from ottla.spark.options.write_options import WriteOptions

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

    def encode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedBatch]:
        """The rows in record batches; rows of one partition keep their order."""
        for table in gathered(batches, GATHERED_BYTES):
            rows = RecordRows([self._columns(batch) for batch in table.to_batches()])
            sizes, hashes = rows.sizes_max, self._key_hashes(rows)
            wanted = _column(table, "partition")
            for topic, numbers in self._by_topic(table):
                count = self._partitions_count(topic)
                if numbers is None:
                    partitions = self._partitions(topic, count, hashes, sizes, wanted)
                else:
                    chosen = None if wanted is None else wanted.take(pa.array(numbers))
                    partitions = self._partitions(topic, count, hashes[numbers], sizes[numbers], chosen)
                for partition, indices in by_partition(partitions, count):
                    place = TopicPartition(topic, partition)
                    mine = indices if numbers is None else numbers[indices]
                    for part in split_rows(sizes[mine], self._options.batch_bytes_max):
                        yield EncodedBatch(place, part.stop - part.start, self._encode(rows, mine[part]))

    def _encode(self, rows: RecordRows, numbers: Ints) -> bytearray:
        # An idempotent producer writes its number into the batch, and then the checksum.
        return rows.encode_batch(
            numbers,
            self._options.codec,
            has_checksum=not self._options.producer.is_idempotent,
            is_transactional=self._options.exactly_once is not None,
        )

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, Ints | None]]:
        """Each topic with the numbers of its rows; None: all of the table."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        topics = _column(table, "topic")
        assert topics is not None
        if topics.null_count:
            raise UnencodableColumn("the column 'topic' is null in a row", hint="give the option 'topic', or fill it")
        numbered = topics.dictionary_encode()
        numbers = np.asarray(numbered.indices)
        for number, topic in enumerate(numbered.dictionary.to_pylist()):
            yield topic, np.flatnonzero(numbers == number)

    def _columns(self, batch: pa.RecordBatch) -> RecordColumns:
        value = batch.column("value")
        key = _batch_column(batch, "key")
        headers = _batch_column(batch, "headers")
        return RecordColumns(
            pa.nulls(len(value), pa.binary()) if key is None else as_binary(key, "key"),
            as_binary(value, "value"),
            None if headers is None or headers.null_count == len(headers) else as_headers(headers),
            self._timestamps_ms(batch),
        )

    def _timestamps_ms(self, batch: pa.RecordBatch) -> Ints:
        now_ms = self._clock.now_ms()
        if not self._options.keeps_timestamps:
            return np.full(batch.num_rows, now_ms, np.int64)
        stamps = batch.column("timestamp")
        micros = stamps.cast(pa.timestamp("us", tz=stamps.type.tz)).cast(pa.int64())
        return np.asarray(pc.fill_null(micros, now_ms * 1000)).astype(np.int64) // 1000

    def _key_hashes(self, rows: RecordRows) -> Ints:
        return np.full(len(rows), NO_KEY, np.int64) if self._options.ignores_keys else rows.key_hashes()

    def _partitions(self, topic: str, count: int, hashes: Ints, sizes: Ints, wanted: pa.Array | None) -> Ints:
        run_bytes = self._options.batch_bytes_max
        chosen = partitions_of(hashes, sizes, count, self._runs.next_of(topic), run_bytes)
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


def _batch_column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _column(table: pa.Table, name: str) -> pa.Array | None:
    if name not in table.column_names:
        return None
    column = table.column(name).combine_chunks()
    # A chunked array without chunks combines to a chunked array in some versions of Arrow.
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column


def encoder_of_task(options: WriteOptions, cluster: Cluster) -> RowEncoder:
    """For the task that runs here; it creates topics where the cluster does that."""
    task = TaskContext.get()

    def partitions_count(topic: str) -> int:
        return len(cluster.topic(topic, allow_auto_topic_creation=True).partitions)

    return RowEncoder(options, partitions_count, task.partitionId() if task is not None else 0, cluster.clock)

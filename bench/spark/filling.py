"""Topics and files of records, written by others than those who are compared: librdkafka and pyarrow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

from bench.client.contenders.confluent import Deliveries
from bench.client.job import PLAIN
from bench.client.values import VALUES_COUNT, values_of
from bench.raw_client.load import LoadFailed
from bench.spark.matrix import FIXED, Shape

PARTITIONS: Final = 4
# How many records go to one partition before the next one's turn.
RUN_RECORDS: Final = 100
FLUSH_S: Final = 120
FILLERS: Final = 2
FILE_ROWS: Final = 100_000
_SEED: Final = 2


@lru_cache(maxsize=4)
def rows_of(shape: Shape) -> tuple[tuple[bytes | None, bytes], ...]:
    """`VALUES_COUNT` keys and values; record i of a topic has those at i modulo their count."""
    if shape.kind == FIXED:
        return tuple((None, value) for value in values_of(shape.value_bytes))
    source = random.Random(_SEED)
    longest = values_of(shape.value_bytes * 3 // 2)
    return tuple(
        (
            str(source.randrange(10 ** source.randint(1, 8))).encode(),
            value[: source.randint(len(value) // 3, len(value))],
        )
        for value in longest
    )


def value_bytes_in(shape: Shape, rows: int) -> int:
    """The sum of the values' lengths."""
    lengths = [len(value) for _, value in rows_of(shape)]
    cycles, rest = divmod(rows, VALUES_COUNT)
    return cycles * sum(lengths) + sum(lengths[:rest])


def fill_topic(bootstrap: str, topic: str, shape: Shape, rows: int) -> None:
    """Batches as large as librdkafka makes them by default: 1 MB or 10,000 records.  The topic exists.

    Several processes fill it: what they need is gone afterwards, and one alone is slower than the broker.
    """
    with ProcessPoolExecutor(FILLERS, get_context("spawn")) as pool:
        fillings = [pool.submit(_fill, bootstrap, topic, shape, share) for share in shares_of(rows)]
        for filling in fillings:
            filling.result()


def shares_of(rows: int) -> list[int]:
    """How many each process writes.  All but the last write whole cycles, so together they write the same records."""
    whole = rows // FILLERS // VALUES_COUNT * VALUES_COUNT
    return [*[whole] * (FILLERS - 1), rows - whole * (FILLERS - 1)]


def _fill(bootstrap: str, topic: str, shape: Shape, rows: int) -> None:
    deliveries = Deliveries()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            # A batch is full before it is sent, on a slow machine too.
            "linger.ms": 2000,
            "compression.type": "none" if shape.codec == PLAIN else shape.codec,
            "queue.buffering.max.kbytes": 256 << 10,
            "queue.buffering.max.messages": 2_000_000,
            "on_delivery": deliveries,
        }
    )
    for index, (key, value) in enumerate(_repeated(shape, rows)):
        partition = index // RUN_RECORDS % PARTITIONS
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.05)
        if index % RUN_RECORDS == 0:
            producer.poll(0)
    producer.flush(FLUSH_S)
    if deliveries.error is not None or deliveries.count != rows:
        raise LoadFailed(f"{topic}: {deliveries.count} of {rows} records were acknowledged: {deliveries.error}")


def write_rows(directory: Path, shape: Shape, rows: int) -> None:
    """The same records as Parquet files with `key` and `value`, one for each partition: what a sink is fed with."""
    directory.mkdir(parents=True)
    schema = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])
    cycle = rows_of(shape)
    for number in range(PARTITIONS):
        count = rows // PARTITIONS + (number < rows % PARTITIONS)
        table = pa.Table.from_pylist([{"key": key, "value": value} for key, value in cycle], schema)
        whole = pa.concat_tables([table] * (count // len(cycle) + 1)).slice(0, count)
        pq.write_table(
            whole, directory / f"{number}.parquet", row_group_size=FILE_ROWS, compression="none", use_dictionary=False
        )


def _repeated(shape: Shape, rows: int) -> Iterator[tuple[bytes | None, bytes]]:
    cycle = rows_of(shape)
    for index in range(rows):
        yield cycle[index % len(cycle)]

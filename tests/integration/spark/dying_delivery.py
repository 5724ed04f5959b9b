"""A stream that is exactly once, whose processes may end by SIGKILL at a point of a batch, or come too late.

    python -m tests.integration.spark.dying_delivery BOOTSTRAP SOURCE TARGET DIRECTORY [POINT BATCH]

Points: `task`: a task has encoded its rows; its worker dies, once, and Spark runs it again.  `taken over`: the driver
has the transactional id; `sent`: everything is stored, and not committed; `committed`: Spark does not know it.  At
these the driver dies, with its JVM and its workers.  `late`: everything is stored, and the driver waits until the
coordinator has aborted the transaction; then it continues.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import ottla.spark
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.spark.options.write_options import ExactlyOnce, WriteOptions
from ottla.spark.sink.exactly_once import ExactlyOnceSink, RowsEncoded
from ottla.spark.source.data_source import OttlaDataSource
from tests.eventually import eventually

ROWS_OF_BATCH: Final = 20
# Of the driver, which leads the group of all processes but Python's workers.
_GROUP: Final = "DYING_DELIVERY_GROUP"
_POINT: Final = "DYING_DELIVERY_POINT"
LATE: Final = "late"
_LATE_TIMEOUT_MS: Final = 2_000


class Point(NamedTuple):
    name: str
    batch_id: int
    # It is there once a worker has died.
    mark: Path


def point() -> Point:
    """Of this run, for the driver's processes and the tasks'."""
    name, batch_id, mark = os.environ[_POINT].split(",")
    return Point(name, int(batch_id), Path(mark))


def die() -> None:
    os.killpg(int(os.environ[_GROUP]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_time_out(transactions: BatchTransactions) -> None:
    admin = TransactionAdmin(transactions._cluster)
    eventually(lambda: not admin.describe(transactions._machine.transactional_id).is_open)


class DyingSink(ExactlyOnceSink):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsEncoded:
        encoded = super().write(iterator)
        task = TaskContext.get()
        assert task is not None
        if point().name == "task" and task.getLocalProperty("streaming.sql.batchId") == str(point().batch_id):
            try:
                point().mark.touch(exist_ok=False)
            except FileExistsError:
                return encoded
            os.kill(os.getpid(), signal.SIGKILL)
        return encoded

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        name = point().name if batchId == point().batch_id else ""
        commit, begin = BatchTransactions.commit, BatchTransactions.begin

        def begins(transactions: BatchTransactions) -> None:
            if name == "taken over":
                die()
            begin(transactions)

        def commits(transactions: BatchTransactions) -> None:
            transactions.flush()
            if name == "sent":
                die()
            if name == LATE:
                wait_for_time_out(transactions)
            commit(transactions)
            if name == "committed":
                die()

        with patch.multiple(BatchTransactions, begin=begins, commit=commits):
            super().commit(messages, batchId)


class DyingDataSource(OttlaDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options: WriteOptions = self._write_options(schema, overwrite)
        assert isinstance(options.exactly_once, ExactlyOnce)
        return DyingSink(options, options.exactly_once)


def run(bootstrap: str, source: str, target: str, directory: Path) -> None:
    # With further attempts of a task on one machine.
    spark = ottla.spark.session("dying delivery", master="local[2,3]")
    spark.dataSource.register(DyingDataSource)
    stream = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    rows = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(ROWS_OF_BATCH)).load()
    writer = rows.select("value").writeStream.format("dying").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("delivery", "exactly-once")
    if point().name == LATE:
        writer = writer.option("kafka.transaction.timeout.ms", str(_LATE_TIMEOUT_MS))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, BOOTSTRAP, SOURCE, TARGET, DIRECTORY, *WHERE = sys.argv
    os.environ[_GROUP] = str(os.getpid())
    name, batch_id = WHERE or ("", "-1")
    os.environ[_POINT] = ",".join((name, batch_id, str(Path(DIRECTORY) / "died")))
    # Workers unpickle the sink by its name, and not as one of `__main__`.
    from tests.integration.spark import dying_delivery

    dying_delivery.run(BOOTSTRAP, SOURCE, TARGET, Path(DIRECTORY))

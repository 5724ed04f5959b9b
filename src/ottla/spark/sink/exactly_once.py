"""Streams that are exactly once: tasks encode, and the driver writes a micro-batch in one transaction.

A task touches no log, so one that fails, is late or is run twice leaves nothing in any topic: Spark passes the rows of
one attempt of each task to the driver.  What the driver does with a batch that may be written already: `deliveries`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.producing.errors import TransactionAbortable
from ottla.client.wire.cluster import Cluster
from ottla.observe.events import fields
from ottla.spark.errors import NotWritten, with_brief_errors
from ottla.spark.options.write_options import ExactlyOnce, WriteOptions
from ottla.spark.sink.deliveries import Delivery, DeliveryRun, NotDelivered, Step
from ottla.spark.sink.delivery_topic import DeliveryTopic
from ottla.spark.sink.row_encoder import EncodedBatch, encoder_of_task
from ottla.spark.sink.row_queue import write_beside
from ottla.spark.source.cluster_view import open_cluster
from ottla.spark.spark_features import DataSourceStreamArrowWriter
from ottla.spark.worker_heap import reuse_freed_memory, settle_heap

_log: Final = logging.getLogger(__name__)

# What Spark's engine sets for the tasks of a stream; a query keeps its id in its checkpoint.
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class RowsEncoded(WriterCommitMessage):
    """The rows of one task, on their way to the driver."""

    query_id: str
    batches: Sequence[EncodedBatch]


@with_brief_errors
def encode_rows(options: WriteOptions, rows: Iterator[pa.RecordBatch]) -> RowsEncoded:
    """In an executor: the rows of a task as batches."""
    settle_heap()
    reuse_freed_memory()
    task = TaskContext.get()
    query_id = None if task is None else task.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise NotDelivered("exactly-once is for streams, and this is none", hint="write with writeStream")

    def encode(received: Iterator[pa.RecordBatch]) -> list[EncodedBatch]:
        with open_cluster(options.connection) as cluster:
            return list(encoder_of_task(options, cluster).encode(received))

    return RowsEncoded(query_id, write_beside(rows, encode))


@with_brief_errors
def commit_batch(options: WriteOptions, wanted: ExactlyOnce, batch_id: int, tasks: Sequence[RowsEncoded]) -> None:
    """In the driver: write a micro-batch, unless it is written already.

    Raises ClientError, NotDelivered; then Spark's query fails, and runs the batch again at its next start.
    """
    # Spark runs a task for a batch without rows, too.
    (query_id,) = {task.query_id for task in tasks}
    name = f"{wanted.id_prefix}{query_id}"
    rows_count = sum(batch.records_count for task in tasks for batch in task.batches)
    run = DeliveryRun(Delivery(batch_id, rows_count), wanted.from_batch)
    with (
        open_cluster(options.connection) as cluster,
        BatchTransactions(cluster, name, wanted.transaction_timeout_ms, options.producer) as transactions,
    ):
        try:
            _carry_out(run, cluster, transactions, DeliveryTopic(cluster, f"{name}.deliveries"), tasks)
        except TransactionAbortable as error:
            raise NotWritten(str(error.reason), hint=error.reason.hint) from error.reason
    event = "sink.micro_batch_was_written" if run.is_repeated else "sink.micro_batch_written"
    _log.log(
        logging.INFO if run.is_repeated else logging.DEBUG, event, extra=fields(batch_id=batch_id, rows=rows_count)
    )


def _carry_out(
    run: DeliveryRun,
    cluster: Cluster,
    transactions: BatchTransactions,
    topic: DeliveryTopic,
    tasks: Sequence[RowsEncoded],
) -> None:
    while run.step is not Step.DONE:
        match run.step:
            case Step.TAKE_OVER:
                topic.ensure()
                transactions.take_over()
                run.on_taken_over()
            case Step.READ_LAST:
                run.on_last(topic.last())
            case Step.WRITE:
                transactions.begin()
                for task in tasks:
                    for encoded in task.batches:
                        transactions.send(encoded.partition, encoded.batch)
                transactions.send(topic.partition, topic.batch(run.delivery))
                run.on_written()
            case Step.COMMIT:
                transactions.commit()
                run.on_committed()


class ExactlyOnceSink(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, wanted: ExactlyOnce) -> None:
        self._options = options
        self._wanted = wanted

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsEncoded:
        return encode_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        tasks = [message for message in messages if isinstance(message, RowsEncoded)]
        assert len(tasks) == len(messages), "Spark commits a batch when all its tasks have ended"
        commit_batch(self._options, self._wanted, batchId, tasks)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is written: a transaction that failed is aborted, or will be by the next start of the query."""
        _log.info("sink.micro_batch_aborted", extra=fields(batch_id=batchId))

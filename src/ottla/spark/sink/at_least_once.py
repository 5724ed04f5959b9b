"""Writes that are at least once: each task is a producer.

An idempotent producer stores a retried request once; a task that Spark runs again writes its rows again.  A task ends
only when every batch is acknowledged as `kafka.acks` requires, by all in-sync replicas by default.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.model.counted import counted
from ottla.spark.errors import NotWritten, with_brief_errors
from ottla.spark.options.write_options import WriteOptions
from ottla.spark.sink.row_encoder import encoder_of_task
from ottla.spark.sink.row_queue import write_beside
from ottla.spark.source.cluster_view import open_cluster
from ottla.spark.spark_features import DataSourceStreamArrowWriter
from ottla.spark.worker_heap import reuse_freed_memory, settle_heap

_log: Final = logging.getLogger(__name__)

# A look for answers costs as much as the encoding of some hundred rows; more requests than this may be in flight.
BATCHES_PER_POLL: Final = 4


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """The rows of one task, all acknowledged."""

    rows_count: int
    batches_count: int


@with_brief_errors
def write_rows(options: WriteOptions, rows: Iterator[pa.RecordBatch]) -> RowsWritten:
    """In an executor: produce all rows of a task and wait for the last acknowledgement.

    Raises `NotWritten` for the first batch that the cluster did not acknowledge.
    """
    settle_heap()
    reuse_freed_memory()
    return write_beside(rows, partial(_produce, options))


def _produce(options: WriteOptions, rows: Iterator[pa.RecordBatch]) -> RowsWritten:
    rows_count = batches_count = 0
    with open_cluster(options.connection) as cluster, RawProducer(cluster, options.producer) as producer:
        for encoded in encoder_of_task(options, cluster).encode(rows):
            producer.send(encoded.partition, encoded.batch)
            rows_count += encoded.records_count
            batches_count += 1
            if batches_count % BATCHES_PER_POLL == 0:
                check_acknowledged(producer.poll())
        check_acknowledged(producer.flush())
        if producer.pending_count:
            raise NotWritten(f"not acknowledged in time: {counted(producer.pending_count, 'batch', 'batches')}")
    return RowsWritten(rows_count, batches_count)


def check_acknowledged(results: Sequence[BatchResult]) -> None:
    for result in results:
        if result.status not in (DeliveryStatus.ACKNOWLEDGED, DeliveryStatus.SENT):
            reason = result.error if result.error is not None else result.status.value
            hint = result.error.hint if result.error is not None else None
            raise NotWritten(f"{counted(result.records_count, 'record')} for {result.partition}: {reason}", hint=hint)


class BatchSink(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing to do: the rows are written already."""
        _log.debug("sink.batch_written", extra={"rows": rows_written(messages)})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Appended records cannot be undone."""
        _log.info("sink.batch_aborted", extra={"rows": rows_written(messages)})


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return write_rows(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _log.debug("sink.micro_batch_written", extra={"batch_id": batchId, "rows": rows_written(messages)})

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Appended records cannot be undone; the batch runs again when the query is restarted."""
        _log.info("sink.micro_batch_aborted", extra={"batch_id": batchId, "rows": rows_written(messages)})


def rows_written(messages: Sequence[WriterCommitMessage | None]) -> int:
    """A task that failed has no message."""
    return sum(message.rows_count for message in messages if isinstance(message, RowsWritten))

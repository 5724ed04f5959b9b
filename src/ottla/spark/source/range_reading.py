"""A task's work: fetch the batches of its offset ranges and decode them, without lasting state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ottla.client.aborted_batches import AbortedBatches
from ottla.client.cluster import Cluster
from ottla.client.errors import OffsetOutOfRange
from ottla.client.fetch import FetchedPartition, FetchLimits
from ottla.client.fetcher import Fetcher
from ottla.client.offsets import IsolationLevel, log_ranges
from ottla.model.identifiers import TopicPartition
from ottla.spark.arrow.decoder import Decoder
from ottla.spark.errors import DataLoss
from ottla.spark.options.read_options import Connection
from ottla.spark.source.cluster_view import open_cluster
from ottla.spark.source.offset_ranges import OffsetRange

FETCH_WAIT_MS: Final = 500
# A small range is not worth a large fetch: most of it would be after the range's end.
FETCH_BYTES_MIN: Final = 1 << 16
BYTES_PER_OFFSET_GUESS: Final = 1024


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything that an executor needs; small, since it is pickled.  No partition is in two of its ranges."""

    connection: Connection
    ranges: tuple[OffsetRange, ...]
    columns: tuple[str, ...]
    fetch_bytes: int
    fails_on_data_loss: bool
    isolation: IsolationLevel


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """All records of all ranges, each range in offset order.

    Raises `CorruptRecords`, `DataLoss`, or the client's errors.
    """
    with open_cluster(task.connection) as cluster:
        yield from _TaskReader(cluster, task).read()


class _TaskReader:
    def __init__(self, cluster: Cluster, task: ReadTask) -> None:
        self._cluster = cluster
        self._task = task
        self._ends = {TopicPartition(part.topic, part.partition): part.end_offset for part in task.ranges}
        assert len(self._ends) == len(task.ranges), "a partition is in two ranges of one task"
        self._decoders = {place: Decoder(place.topic, place.partition, task.columns) for place in self._ends}

    def read(self) -> Iterator[pa.RecordBatch]:
        first = {TopicPartition(part.topic, part.partition): part.first_offset for part in self._task.ranges}
        with Fetcher(
            self._cluster, first, self._ends, limits=self._limits(), isolation=self._task.isolation
        ) as fetcher:
            progress_ms = self._cluster.clock.monotonic_ms()
            while not fetcher.is_finished:
                try:
                    fetched = fetcher.poll(FETCH_WAIT_MS)
                except OffsetOutOfRange as error:
                    self._skip_what_is_lost(fetcher, error)
                    fetched = []
                for part in fetched:
                    yield from self._decode(part)
                if fetched:
                    progress_ms = self._cluster.clock.monotonic_ms()
                else:
                    self._check_patience(fetcher, self._cluster.clock.monotonic_ms() - progress_ms)

    def _limits(self) -> FetchLimits:
        offsets_count = sum(part.offsets_count for part in self._task.ranges)
        size = min(self._task.fetch_bytes, max(FETCH_BYTES_MIN, offsets_count * BYTES_PER_OFFSET_GUESS))
        return FetchLimits(max_bytes=size, partition_max_bytes=size, max_wait_ms=FETCH_WAIT_MS)

    def _decode(self, part: FetchedPartition) -> Iterator[pa.RecordBatch]:
        aborted = None
        if self._task.isolation is IsolationLevel.READ_COMMITTED:
            aborted = AbortedBatches(part.aborted_transactions)
        decoder = self._decoders[part.partition]
        return decoder.decode(part.records, part.fetch_offset, self._ends[part.partition], aborted)

    def _skip_what_is_lost(self, fetcher: Fetcher, error: OffsetOutOfRange) -> None:
        """The offset is outside of its log: continue at the log's start, or end the range, if that is allowed."""
        place = error.partition
        log = log_ranges(self._cluster, [place])[place]
        next_offset = log.start if log.start > error.offset else self._ends[place]
        self._lose(place, error.offset, next_offset, f"the log has {log.start} to {log.stop} (exclusive)")
        fetcher.seek(place, next_offset)

    def _check_patience(self, fetcher: Fetcher, waited_ms: int) -> None:
        """No records arrive although the plan saw these offsets: they are late, or the log was truncated."""
        if waited_ms <= self._task.connection.request_timeout_ms:
            return
        for place, offset in list(fetcher.positions.items()):
            self._lose(place, offset, self._ends[place], f"no records arrived in {waited_ms} ms")
            fetcher.drop(place)

    def _lose(self, place: TopicPartition, offset: int, next_offset: int, reason: str) -> None:
        if self._task.fails_on_data_loss:
            end = min(next_offset, self._ends[place])
            raise DataLoss(f"offsets {offset} to {end} (exclusive) of {place} are gone: {reason}")

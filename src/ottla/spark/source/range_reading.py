"""A task's work: fetch the batches of its offset ranges and decode them, without lasting state.

Records are lost only where the log proves it (`lost_offsets`), or where the topic is another one than was planned.
Every other reason for missing records is a time-out: the task fails, and Spark or the user tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from ottla.client.fetching.fetch_machine import FetchFailure
from ottla.client.fetching.fetch_requests import AbortedBatches, FetchedPartition, FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, OffsetOutOfRange, TopicRecreated, UnknownTopic
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.lost_offsets import LostRange, write_losses
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import MIB
from ottla.protocol.schema import ZERO_UUID
from ottla.records.errors import CorruptBatch
from ottla.records.header import BatchHeader
from ottla.records.record import check_batch
from ottla.spark.arrow.decoder import Decoder
from ottla.spark.errors import CorruptRecords, DataLoss, ReadTimedOut
from ottla.spark.options.connection import Connection
from ottla.spark.options.read_options import OnLoss, ReadOptions
from ottla.spark.source.cluster_view import open_cluster
from ottla.spark.source.gone_topics import is_gone, is_latest_leader, leaders_log
from ottla.spark.source.offset_ranges import OffsetRange

log = logging.getLogger(__name__)

FETCH_WAIT_MS: Final = 500
# A small range is not worth a large fetch: most of it would be after the range's end.
FETCH_BYTES_MIN: Final = 1 << 16
BYTES_PER_OFFSET_GUESS: Final = 1024
# Of this process, for all its tasks: two fetches of each leader, one of which is decoded, and what is decompressed.
_MEMORY: Final = ReusedMemory(64 * MIB)
_SKIP_ADVICE: Final = "set the option skipUnreadableBatches to true to continue after this batch"
# One more short request to a stalled broker finds the reason.
_QUESTION_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class LostOffsetsTopic:
    """The topic of lost offsets, as this reader writes it."""

    topic: str
    reader: str


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Everything that an executor needs; small, since it is pickled.  No partition is in two of its ranges.

    Without `fails_on_data_loss` it continues after a loss, which is recorded in `lost_offsets`, if given, before any
    later row is returned.
    """

    connection: Connection
    ranges: tuple[OffsetRange, ...]
    columns: tuple[str, ...]
    fetch_bytes: int
    fails_on_data_loss: bool
    isolation: IsolationLevel
    lost_offsets: LostOffsetsTopic | None = None
    # A batch that cannot be decoded is skipped: a warning says where, and an entry of `lost_offsets`.
    skips_unreadable: bool = False


def task_of(options: ReadOptions, columns: tuple[str, ...], ranges: tuple[OffsetRange, ...]) -> ReadTask:
    """A task that reads these ranges as the options say."""
    return ReadTask(
        replace(options.connection, call_timeout_ms=options.read_timeout_ms),
        ranges,
        columns,
        options.fetch_bytes,
        options.fails_on_data_loss,
        options.isolation,
        LostOffsetsTopic(options.lost_offsets_topic, options.reader) if options.on_loss is OnLoss.RECORD else None,
        options.skips_unreadable,
    )


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """All records of all ranges, each range in offset order.

    Raises `CorruptRecords`, `DataLoss`, `ReadTimedOut`, or the client's errors.
    """
    with open_cluster(task.connection, _MEMORY) as cluster:
        yield from _TaskReader(cluster, task).read()


class _TaskReader:
    def __init__(self, cluster: Cluster, task: ReadTask) -> None:
        self._cluster = cluster
        self._task = task
        self._ends = {TopicPartition(part.topic, part.partition): part.end_offset for part in task.ranges}
        assert len(self._ends) == len(task.ranges), "a partition is in two ranges of one task"
        self._topic_ids = {part.topic: part.topic_id for part in task.ranges}
        self._decoders = {place: Decoder(place.topic, place.partition, task.columns, _MEMORY) for place in self._ends}
        self._progress_ms = cluster.clock.monotonic_ms()
        self._pauses = {place: cluster.retrying.backoff() for place in self._ends}

    def read(self) -> Iterator[pa.RecordBatch]:
        first = {TopicPartition(part.topic, part.partition): part.first_offset for part in self._task.ranges}
        with Fetcher(
            self._cluster,
            first,
            self._ends,
            topic_ids=self._topic_ids,
            limits=self._limits(),
            isolation=self._task.isolation,
        ) as fetcher:
            while not fetcher.is_finished:
                fetched = fetcher.poll_each(FETCH_WAIT_MS)
                for part in fetched:
                    if isinstance(part, FetchFailure):
                        self._on_failure(fetcher, part)
                    else:
                        yield from self._decode(part)
                        self._progress_ms = self._cluster.clock.monotonic_ms()
                if self._waited_ms() > self._task.connection.call_timeout_ms:
                    self._on_stall(fetcher)
            if fetcher.has_read_by_name:
                self._check_same_topics()

    def _waited_ms(self) -> float:
        return self._cluster.clock.monotonic_ms() - self._progress_ms

    def _limits(self) -> FetchLimits:
        offsets_count = sum(part.offsets_count for part in self._task.ranges)
        size = min(self._task.fetch_bytes, max(FETCH_BYTES_MIN, offsets_count * BYTES_PER_OFFSET_GUESS))
        return FetchLimits(max_bytes=size, partition_max_bytes=size, max_wait_ms=FETCH_WAIT_MS)

    def _decode(self, part: FetchedPartition) -> Iterator[pa.RecordBatch]:
        decoder = self._decoders[part.partition]
        whole = decoder.decode(part.records, part.fetch_offset, self._ends[part.partition], self._aborted(part))
        try:
            # What may have to be decoded once more is not handed on yet.
            yield from list(whole) if self._task.skips_unreadable else whole
        except CorruptRecords as damage:
            if not self._task.skips_unreadable:
                raise damage.with_advice(_SKIP_ADVICE) from damage
            yield from self._decode_readable(part, damage)

    def _decode_readable(self, part: FetchedPartition, damage: CorruptRecords) -> Iterator[pa.RecordBatch]:
        """Batch by batch; what cannot be decoded is stepped over.  Raises `damage` where a head cannot be believed."""
        place, end, aborted = part.partition, self._ends[part.partition], self._aborted(part)
        next_offset = 0
        for batch, header in _with_heads(part, damage):
            if header.base_offset < next_offset or header.next_offset > part.high_watermark:
                raise damage
            next_offset = header.next_offset
            try:
                yield from self._decoders[place].decode(batch, part.fetch_offset, end, aborted)
            except CorruptRecords as unreadable:
                first = max(header.base_offset, part.fetch_offset)
                reason = f"the batch cannot be read: {unreadable.problem}"
                self._pass_over(place, first, min(next_offset, end), reason)

    def _aborted(self, part: FetchedPartition) -> AbortedBatches | None:
        if self._task.isolation is not IsolationLevel.READ_COMMITTED:
            return None
        return AbortedBatches(part.aborted_transactions)

    def _on_failure(self, fetcher: Fetcher, failure: FetchFailure) -> None:
        """The partition is not read any more unless it is sought: skip what is proven to be lost, or raise."""
        place, offset, error = failure
        if isinstance(error, OffsetOutOfRange):
            until, log = self._lost_until(place, offset)
            if until is None:
                # The log has it now, or its leader is a former one: the replica that answered lags.
                self._cluster.retrying.sleep_ms(self._pauses[place].next_ms())
                fetcher.seek(place, offset)
            else:
                self._lose(place, offset, until, f"the {_has(log)}")
                fetcher.seek(place, until)
        elif isinstance(error, TopicRecreated | UnknownTopic):
            if self._is_gone(place, offset):
                self._lose(place, offset, self._ends[place], str(error))
            else:
                fetcher.seek(place, offset)
        elif isinstance(error, ClientError) and error.is_retriable:
            raise self._timed_out(place, offset, str(error)) from error
        else:
            raise error

    def _is_gone(self, place: TopicPartition, offset: int) -> bool:
        try:
            return is_gone(self._cluster, [place], self._topic_ids[place.topic], self._question())
        except ClientError as error:
            raise self._timed_out(place, offset, str(error)) from error

    def _on_stall(self, fetcher: Fetcher) -> None:
        """Nothing came for too long.  Only a log that is shorter than the plan proves that nothing will come."""
        for place, offset in list(fetcher.positions.items()):
            until, log = self._lost_until(place, offset)
            if until is None:
                raise self._timed_out(place, offset, f"its {_has(log)}")
            self._lose(place, offset, until, f"the {_has(log)}")
            fetcher.seek(place, until)
        self._progress_ms = self._cluster.clock.monotonic_ms()

    def _lost_until(self, place: TopicPartition, offset: int) -> tuple[int | None, range]:
        """The end of what is proven to be lost from `offset` on, and the offsets that the log has.

        Raises `ReadTimedOut`.
        """
        try:
            log, leader_epoch = leaders_log(self._cluster, place, self._question().remaining_ms)
            until = lost_until(offset, self._ends[place], log)
            if until is not None and not is_latest_leader(self._cluster, place, leader_epoch, self._question()):
                until = None
        except ClientError as error:
            raise self._timed_out(place, offset, str(error)) from error
        return until, log

    def _question(self) -> Deadline:
        """Time for a question about what does not come; a little in any case, as it is often found late."""
        left_ms = self._task.connection.call_timeout_ms - self._waited_ms()
        return self._cluster.retrying.deadline(max(left_ms, min(_QUESTION_MS, self._cluster.options.call_timeout_ms)))

    def _timed_out(self, place: TopicPartition, offset: int, reason: str) -> ReadTimedOut:
        leader = self._cluster.last_known_leader(place)
        broker = "no broker led it" if leader is None else f"broker {leader.node_id} at {leader.address} leads it"
        waited_s = self._waited_ms() / 1000
        return ReadTimedOut(
            f"no records of {place} from offset {offset} on came in {waited_s:.1f} s; {broker}: {reason}"
        )

    def _check_same_topics(self) -> None:
        """Fetches by name read any topic of that name: fail after rows of another one were returned."""
        known = {name: topic_id for name, topic_id in self._topic_ids.items() if topic_id != ZERO_UUID}
        self._cluster.forget(known)
        for place in self._ends:
            expected = known.get(place.topic, ZERO_UUID)
            found = self._cluster.topic(place.topic).topic_id
            if expected not in (ZERO_UUID, found):
                raise DataLoss(str(TopicRecreated(place, expected, found)))

    def _lose(self, place: TopicPartition, offset: int, next_offset: int, reason: str) -> None:
        lost = self._lost(place, offset, next_offset, reason)
        if self._task.fails_on_data_loss:
            raise DataLoss(str(lost))
        self._write_down(lost)

    def _pass_over(self, place: TopicPartition, offset: int, next_offset: int, reason: str) -> None:
        lost = self._lost(place, offset, next_offset, reason)
        log.warning("%s (skipUnreadableBatches)", lost)
        self._write_down(lost)

    def _lost(self, place: TopicPartition, offset: int, next_offset: int, reason: str) -> LostRange:
        return LostRange(place.topic, self._topic_ids[place.topic], place.partition, offset, next_offset, reason)

    def _write_down(self, lost: LostRange) -> None:
        lost_offsets = self._task.lost_offsets
        if lost_offsets is not None:
            write_losses(self._cluster, lost_offsets.topic, lost_offsets.reader, [lost])


def _has(log: range) -> str:
    return f"log has {log.start} to {log.stop} (exclusive)"


def _with_heads(part: FetchedPartition, damage: CorruptRecords) -> Iterator[tuple[memoryview, BatchHeader]]:
    try:
        for batch in part.batches():
            yield batch, check_batch(batch, check_crc=False)
    except CorruptBatch:
        raise damage from None


def lost_until(position: int, end: int, log: range) -> int | None:
    """The offset up to which `[position, end)` is gone, given the readable offsets of the log; None: nothing is proven.

    The plan saw every offset below `end` in the log, so a log that ends before lost them (a topic that was recreated,
    or a truncation), and one that starts after `position` deleted them.  A leader that answers ListOffsets does not go
    back to a lower end (KIP-207).
    """
    if position < log.start:
        return min(log.start, end)
    if position >= log.stop and log.stop < end:
        return end
    return None

"""Copies partitions: from one cluster's fetches to the other's produces, in one thread.

The journal is written after the records; after a crash the target's own end says what arrived since (see `prover`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final

from ottla.client.fetching.fetch_machine import FetchFailure
from ottla.client.fetching.fetch_requests import FetchedPartition, FetchLimits
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, OffsetOutOfRange, TopicRecreated
from ottla.mirror.journal import Entry, progress_entries
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import Flight, PartitionCopy, Phase
from ottla.mirror.progress_topic import JournalNotWritten, JournalWriter, LeaseLapsed
from ottla.mirror.prover import NeedsDecision, Prover
from ottla.model.errors import OttlaError, WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.runtime.clock import Clock

# A fetch is worth its request from so many bytes on.
ROOM_BYTES_MIN: Final = 64 * KIB
ROOM_BYTES_MAX: Final = 4 * MIB


class Throttle:
    """A `FetchRoom`: a bucket that fills with `rate_bytes_s` and holds what comes in a second; None: no limit.

    One batch may be larger than the room: then the bucket is in debt, and the next fetch waits for longer.
    """

    def __init__(self, rate_bytes_s: int | None, clock: Clock) -> None:
        self._rate_bytes_s = rate_bytes_s
        self._clock = clock
        self._holds_bytes = max(rate_bytes_s or 0, ROOM_BYTES_MIN)
        self._left_bytes = float(self._holds_bytes)
        self._filled_ms = clock.monotonic_ms()
        self._reserved: dict[TopicPartition, int] = {}

    def reserve(self, partition: TopicPartition) -> int:
        if self._rate_bytes_s is None:
            return ROOM_BYTES_MAX
        self._fill(self._rate_bytes_s)
        if self._left_bytes < min(ROOM_BYTES_MIN, self._holds_bytes):
            return 0
        room = min(ROOM_BYTES_MAX, int(self._left_bytes))
        self._reserved[partition] = self._reserved.get(partition, 0) + room
        self._left_bytes -= room
        return room

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        if self._rate_bytes_s is not None:
            self._left_bytes += self._reserved.pop(partition, 0) - size_bytes

    def _fill(self, rate_bytes_s: int) -> None:
        now_ms = self._clock.monotonic_ms()
        added = (now_ms - self._filled_ms) * rate_bytes_s / 1000
        self._left_bytes = min(self._holds_bytes, self._left_bytes + added)
        self._filled_ms = now_ms


_FETCH_WAIT_MS: Final = 200
# The longest wait for the source while batches are in flight.
_BUSY_WAIT_MS: Final = 20
_RETRY_FIRST_MS: Final = 500
_RETRY_MAX_MS: Final = 30_000
LEASE_LAPSED: Final = "the mirror's lease has lapsed: nothing is sent"
_LIMITS: Final = FetchLimits(max_bytes=16 * MIB, max_wait_ms=_FETCH_WAIT_MS, check_crc=True)


class Copier:
    """`may_write` is checked before anything is sent.  False ends the copy of the partition that is next, even when it
    is True again later.  `note` is called for an operator, once for each event.

    `failures_max`: a partition that failed so many times in a row is given up; None: never.
    """

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        writer: JournalWriter,
        options: MirrorOptions,
        *,
        may_write: Callable[[], bool] = lambda: True,
        note: Callable[[str], None] = lambda text: None,
        failures_max: int | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._writer = writer
        self._options = options
        self._may_write = may_write
        self._note = note
        self._failures_max = failures_max
        self._prover = Prover(source, target, options, note)
        self._throttle = Throttle(options.rate_bytes_s, source.clock)
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._retry_at_ms: dict[TopicPartition, float] = {}
        self._failures_count: Counter[TopicPartition] = Counter()
        self._unsettled_count: Counter[TopicPartition] = Counter()
        self._unsettled_bytes: Counter[TopicPartition] = Counter()
        self._fetcher: Fetcher | None = None
        self._producer = self._new_producer()
        self._written_ms = target.clock.monotonic_ms()

    def __enter__(self) -> Copier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Without waiting for batches in flight: `drain` does."""
        if self._fetcher is not None:
            self._fetcher.close()
        self._producer.close()

    @property
    def copies(self) -> Mapping[TopicPartition, PartitionCopy]:
        return self._copies

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        return self._ends

    @property
    def is_finished(self) -> bool:
        """Every partition has reached its end, or is stuck for good."""
        return all(copy.is_final or self._has_reached_end(copy) for copy in self._copies.values())

    def assign(self, copies: Iterable[PartitionCopy], ends: Mapping[TopicPartition, int] | None = None) -> None:
        """Add these copies; one that is assigned already for the same partition is replaced.  `ends` are exclusive."""
        self._ends.update(ends or {})
        for copy in copies:
            self._copies[copy.partition] = copy
            self._failures_count.pop(copy.partition, None)
            self._retry_at_ms.pop(copy.partition, None)
        if self._fetcher is not None:
            self._fetcher.close()
        # A new one: it knows the topics' ids from its beginning on.
        self._fetcher = Fetcher(
            self._source,
            {each.partition: each.next_offset for each in self._copies.values() if each.phase is Phase.COPYING},
            self._ends,
            topic_ids={copy.source.topic: copy.source.topic_id for copy in self._copies.values()},
            limits=_LIMITS,
            isolation=IsolationLevel.READ_COMMITTED,
            room=self,
        )

    def release(self, topics: Iterable[str]) -> None:
        """These are not copied any more.  Waits until nothing of them is on its way, and stores how far they got."""
        gone = {copy.partition for copy in self._copies.values() if copy.partition.topic in set(topics)}
        if not gone:
            return
        for partition in gone:
            self._stop_reading(self._copies[partition])
        self._settle(self._producer.flush())
        self.finish_progress()
        for partition in gone:
            del self._copies[partition]

    def turn(self) -> None:
        """Read, send and settle once; it returns after some 200 ms at the latest, unless a broker holds it up."""
        self._prove_due()
        is_busy = self._producer.pending_count > 0 or self._writer.is_busy
        if self._fetcher is None:  # nothing was ever assigned
            self._target.retrying.sleep_ms(_FETCH_WAIT_MS)
            return
        for outcome in self._fetcher.poll_each(_BUSY_WAIT_MS if is_busy else _FETCH_WAIT_MS):
            if isinstance(outcome, FetchFailure):
                self._on_unread(outcome)
            else:
                self._send(outcome)
        self._settle(self._producer.poll(0))
        self._write_progress_when_due()

    def drain(self) -> None:
        """Stop reading; wait for batches in flight, and store the progress.  Raises JournalNotWritten."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
        self._settle(self._producer.flush())
        self.finish_progress()

    def finish_progress(self) -> None:
        """Store the progress now.  Raises JournalNotWritten, LeaseLapsed."""
        try:
            self._writer.finish()
            self._send_progress()
            self._writer.finish()
        except JournalNotWritten:
            self._keep_dirty()
            raise

    def _write_progress_when_due(self) -> None:
        try:
            if self._writer.is_busy:
                self._writer.poll()
                return
            now_ms = self._target.clock.monotonic_ms()
            if now_ms - self._written_ms >= self._options.progress_interval_ms:
                self._written_ms = now_ms
                self._send_progress()
        except JournalNotWritten as error:
            self._on_unwritten(error)

    def _on_unwritten(self, error: JournalNotWritten) -> None:
        """The journal lags, so nothing is wrong yet: only a crash now would have more to compare."""
        if not isinstance(error, LeaseLapsed):
            self._note(str(error))
        self._keep_dirty()

    def _keep_dirty(self) -> None:
        """Which part of a failed write is stored is not known: all progress is stored again."""
        for copy in self._copies.values():
            copy.on_progress_in_doubt()

    def _send_progress(self) -> None:
        dirty = [copy for copy in self._copies.values() if copy.is_dirty]
        if not dirty:
            return
        if not self._may_write():
            raise LeaseLapsed("the progress is not stored: the mirror's lease has lapsed")
        self._writer.make_sure()
        now_ms = self._target.clock.now_ms()
        entries = [entry for copy in dirty for entry in self._entries(copy, now_ms)]
        for copy in dirty:
            copy.on_progress_sent()
        self._writer.send(entries)

    def _entries(self, copy: PartitionCopy, now_ms: int) -> list[Entry]:
        copy.offsets.prune(copy.source_start)
        return progress_entries(copy.source, copy.progress(now_ms), copy.offsets, self._writer.journal)

    @property
    def is_audit_full(self) -> bool:
        """A copy continues only after the audit's counts are published."""
        return any(copy.is_audit_full for copy in self._copies.values())

    def close_audit(self) -> None:
        """Close the counts so far; they are published once they are stored."""
        now_ms = self._target.clock.now_ms()
        for copy in self._copies.values():
            copy.close_audit(now_ms)

    def reserve(self, partition: TopicPartition) -> int:
        """A partition that the target does not take must not fill what is in flight, and so hold up the others."""
        if self._copies[partition].is_audit_full:
            return 0
        share_bytes = self._options.in_flight_bytes_max // max(2, len(self._copies))
        left_bytes = max(share_bytes, ROOM_BYTES_MIN) - self._unsettled_bytes[partition]
        if left_bytes <= 0:
            return 0
        return min(left_bytes, self._throttle.reserve(partition))

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        self._throttle.on_landed(partition, size_bytes)

    def _send(self, fetched: FetchedPartition) -> None:
        copy = self._copies.get(fetched.partition)
        if copy is None or copy.phase is not Phase.COPYING:
            return  # it was read before the partition was stopped
        if fetched.fetch_offset != copy.next_offset:
            problem = f"the source was read from offset {fetched.fetch_offset} on, not from {copy.next_offset}"
            self._stop(copy, problem, retry_ms=0)
            return
        flights = copy.take(fetched)
        try:
            # First the lease, then the next flight: one that is taken and not sent would leave a gap in the copy.
            while self._may_write():
                flight = next(flights, None)
                if flight is None:
                    return
                self._producer.send(copy.partition, flight.batch, flight)
                self._unsettled_count[copy.partition] += 1
                self._unsettled_bytes[copy.partition] += len(flight.batch)
            self._end_copy(copy)
        except WireError as error:
            self._stop(copy, f"the source's log cannot be read: {error}", is_final=True)
        except ClientError as error:
            self._stop(copy, str(error), retry_ms=0)

    def _on_unread(self, failure: FetchFailure) -> None:
        copy = self._copies.get(failure.partition)
        if copy is None or copy.phase is not Phase.COPYING:
            return
        if isinstance(failure.error, OffsetOutOfRange):
            # Retention, or a log that shrank: the proof looks at the ends, when nothing is in flight.
            self._stop(copy, str(failure.error), retry_ms=0)
        else:
            is_final = isinstance(failure.error, WireError | TopicRecreated)
            self._stop(copy, f"the source cannot be read: {failure.error}", is_final=is_final)

    def _settle(self, results: Iterable[BatchResult]) -> None:
        for result in results:
            flight = result.tag
            assert isinstance(flight, Flight)
            copy = flight.owner
            self._unsettled_count[copy.partition] -= 1
            self._unsettled_bytes[copy.partition] -= len(flight.batch)
            if copy.phase is not Phase.COPYING or self._copies.get(copy.partition) is not copy:
                continue  # its flights are forgotten: the proof finds their records
            if result.status is DeliveryStatus.ACKNOWLEDGED and result.base_offset >= 0:
                self._on_stored(copy, flight, result.base_offset)
            else:
                is_refused = isinstance(result.error, ClientError) and not result.error.is_retriable
                # Only a mirror that keeps running can wait for a change of the target.
                is_final = is_refused and self._failures_max is not None and result.status is DeliveryStatus.REFUSED
                self._stop(copy, f"the target did not take it: {result.error}", is_final=is_final)
        if self._producer.is_stopped:
            # Its numbers are not trusted any more.  Everything is settled; copies with batches in flight were stopped.
            self._producer.close()
            self._producer = self._new_producer()

    def _on_stored(self, copy: PartitionCopy, flight: Flight, base_offset: int) -> None:
        try:
            duplicates = sum(self._prover.explain(copy, each) for each in copy.on_acknowledged(flight, base_offset))
        except OttlaError as error:
            self._stop(copy, str(error), is_final=isinstance(error, NeedsDecision), retry_ms=0)
            return
        self._failures_count.pop(copy.partition, None)
        if duplicates:
            # It is at work at the same place: the records that it copies are found, and not copied again.
            self._stop(copy, "another mirror of this source copies it, too")

    def _new_producer(self) -> RawProducer:
        options = ProducerOptions(
            buffer_bytes_max=self._options.in_flight_bytes_max, allow_auto_topic_creation=False, halts_on_refusal=True
        )
        return RawProducer(self._target, options)

    def _stop(
        self, copy: PartitionCopy, problem: str, *, is_final: bool = False, retry_ms: float | None = None
    ) -> None:
        self._stop_reading(copy)
        self._failures_count[copy.partition] += 1
        count = self._failures_count[copy.partition]
        is_final = is_final or (self._failures_max is not None and count >= self._failures_max)
        if copy.problem != problem:
            self._note(f"{copy.source}: {problem}" + ("; it is copied no further" if is_final else ""))
        copy.fail(problem, is_final=is_final)
        pause_ms = min(_RETRY_MAX_MS, _RETRY_FIRST_MS * 2 ** min(count, 10))
        pause_ms = pause_ms if retry_ms is None or count > 1 else retry_ms
        self._retry_at_ms[copy.partition] = self._target.clock.monotonic_ms() + pause_ms

    def _end_copy(self, copy: PartitionCopy) -> None:
        """The lease has lapsed.  A renewal does not revive the copy: the unconfirmed part is compared, and read again.

        No line for each partition: the mirror has one for the lease.
        """
        self._stop_reading(copy)
        copy.fail(LEASE_LAPSED, is_final=False)

    def _stop_reading(self, copy: PartitionCopy) -> None:
        if self._fetcher is not None:
            self._fetcher.drop(copy.partition)

    def _prove_due(self) -> None:
        """Partitions that are new, or were stuck: what does the target have of them?"""
        now_ms = self._target.clock.monotonic_ms()
        due = [
            copy
            for copy in self._copies.values()
            if copy.phase is not Phase.COPYING
            and not copy.is_final
            and now_ms >= self._retry_at_ms.get(copy.partition, 0)
            and not self._unsettled_count[copy.partition]
        ]
        if not due:
            return
        for copy, error in self._prover.prove(due).items():
            if error is not None:
                self._stop(copy, str(error), is_final=isinstance(error, NeedsDecision | WireError | TopicRecreated))
                continue
            if copy.has_gone_back and not self._is_stored(copy):
                continue
            self._producer.resume(copy.partition)
            if self._fetcher is not None:
                self._fetcher.seek(copy.partition, copy.next_offset)

    def _is_stored(self, copy: PartitionCopy) -> bool:
        """After a kill the next mirror must not mistake records that are copied from here on for older ones."""
        try:
            copy.on_progress_in_doubt()
            self.finish_progress()
        except JournalNotWritten as error:
            self._on_unwritten(error)
            self._stop(copy, str(error))
            return False
        copy.on_gone_back_stored()
        return True

    def _has_reached_end(self, copy: PartitionCopy) -> bool:
        end = self._ends.get(copy.partition)
        return (
            copy.phase is Phase.COPYING
            and not copy.in_flight_count
            and end is not None
            and copy.offsets.source_end >= end
        )

"""Copies partitions: from one cluster's fetches to the other's produces, in one thread.

The journal is written after the records; after a crash the target's own end says what arrived since (see `prover`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ottla.mirror.copy_transactions import CopyTransactions, RolledBack
from ottla.mirror.journal import Entry, progress_entries
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import Flight, PartitionCopy, Phase, stored_copy
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

    `failures_max`: a partition that failed so many times in a row is given up, and all of them when so many
    transactions in a row were aborted for another reason than one partition's batch; None: never.

    `transactions`: records and their progress are written in these.  After one that was aborted all copies continue
    from the stored progress.  The copier closes them.
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
        transactions: CopyTransactions | None = None,
    ) -> None:
        self._source = source
        self._transactions = transactions
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
        # Transactions in a row that were aborted without a batch of a partition as the culprit.
        self._aborts_count = 0
        # Of the open transaction.
        self._unexplained: list[tuple[PartitionCopy, range]] = []
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
        if self._transactions is not None:
            self._transactions.close()

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
        self._settle_all()
        self.finish_progress()
        for partition in gone:
            del self._copies[partition]

    def turn(self) -> None:
        """Read, send and settle once; it returns after some 200 ms at the latest, unless a broker holds it up.

        With transactions it raises LeaseLapsed where another mirror has taken over.
        """
        try:
            self._turn()
        except RolledBack as error:
            self._roll_back(error)

    def _turn(self) -> None:
        self._prove_due()
        is_busy = self._pending_count > 0 or self._writer.is_busy
        if self._fetcher is None:  # nothing was ever assigned
            self._target.retrying.sleep_ms(_FETCH_WAIT_MS)
            return
        for outcome in self._fetcher.poll_each(_BUSY_WAIT_MS if is_busy else _FETCH_WAIT_MS):
            if isinstance(outcome, FetchFailure):
                self._on_unread(outcome)
            else:
                self._send(outcome)
        self._settle(self._producer.poll(0) if self._transactions is None else self._transactions.poll())
        self._write_progress_when_due()

    def drain(self) -> None:
        """Stop reading; wait for batches in flight, and store the progress.  Raises JournalNotWritten."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None
        self._settle_all()
        self.finish_progress()

    def finish_progress(self) -> None:
        """Store the progress now.  Raises JournalNotWritten, LeaseLapsed."""
        if self._transactions is not None:
            try:
                self._commit(self._transactions)
            except RolledBack as error:
                raise LeaseLapsed(f"the progress is not stored: {error}") from error
            return
        try:
            self._writer.finish()
            self._send_progress()
            self._writer.finish()
        except JournalNotWritten:
            self._keep_dirty()
            raise

    @property
    def _pending_count(self) -> int:
        return self._producer.pending_count if self._transactions is None else self._transactions.pending_count

    def _settle_all(self) -> None:
        """Wait for the batches in flight.  Raises LeaseLapsed."""
        if self._transactions is None:
            self._settle(self._producer.flush())
            return
        try:
            self._settle(self._transactions.flush())
        except RolledBack as error:
            raise LeaseLapsed(str(error)) from error

    def _commit(self, transactions: CopyTransactions) -> None:
        """Everything that was sent, and the progress that it makes.  Raises RolledBack, LeaseLapsed."""
        if not self._may_write():
            raise LeaseLapsed("the progress is not stored: the mirror's lease has lapsed")
        self._settle(transactions.flush())
        dirty = [copy for copy in self._copies.values() if copy.is_dirty]
        if not dirty and not transactions.is_open:
            return
        self._writer.make_sure()
        now_ms = self._target.clock.now_ms()
        entries = [entry for copy in dirty for entry in self._entries(copy, now_ms)]
        marked = transactions.commit(entries)
        self._aborts_count = 0
        self._writer.on_committed(entries)
        for copy in dirty:
            copy.on_progress_sent()
        for partition in marked:
            self._failures_count.pop(partition, None)
            copied = self._copies.get(partition)
            # Others are proved before they continue, which finds the marker.
            if copied is not None and copied.phase is Phase.COPYING:
                copied.on_marker()
        self._explain_committed(transactions)

    def _roll_back(self, error: RolledBack) -> None:
        """All copies continue from the stored progress; the partition of a batch that was refused waits.

        One that is final, too: what it got since the last commit is not on the target any more.
        """
        self._unsettled_count.clear()
        self._unsettled_bytes.clear()
        self._unexplained.clear()
        failures = Counter(self._failures_count)
        fresh = [self._stored(copy) for copy in self._copies.values()]
        self.assign(fresh)
        self._failures_count = failures
        refused = error.refused
        flight = None if refused is None else refused.tag
        pause_ms = _RETRY_FIRST_MS
        if refused is None or not isinstance(flight, Flight):
            pause_ms = self._on_aborted(error)
        retry_at_ms = self._target.clock.monotonic_ms() + pause_ms
        self._retry_at_ms.update({copied.partition: retry_at_ms for copied in fresh})
        if refused is not None and isinstance(flight, Flight):
            self._on_not_stored(self._copies[flight.owner.partition], refused)

    def _on_aborted(self, error: RolledBack) -> int:
        """For no partition's batch: the progress was refused, or the coordinator.  How long all partitions wait."""
        self._aborts_count += 1
        is_final = self._failures_max is not None and self._aborts_count >= self._failures_max
        self._note(f"a transaction was aborted: {error}" + ("; nothing is copied any further" if is_final else ""))
        if is_final:
            for copy in self._copies.values():
                if not copy.is_final:
                    copy.fail(f"its transactions are aborted: {error}", is_final=True)
        return min(_RETRY_MAX_MS, _RETRY_FIRST_MS << min(self._aborts_count, 10))

    def _stored(self, copy: PartitionCopy) -> PartitionCopy:
        stored = stored_copy(self._writer.journal, copy.source, tells_audit=copy.audit is not None)
        assert stored is not None, "the first progress is stored before the first record is copied"
        if copy.is_final:
            assert copy.problem is not None, "a copy is final for a reason"
            stored.fail(copy.problem, is_final=True)
        return stored

    def _write_progress_when_due(self) -> None:
        if self._transactions is not None:
            now_ms = self._target.clock.monotonic_ms()
            if now_ms - self._written_ms >= self._options.progress_interval_ms:
                self._written_ms = now_ms
                self._commit(self._transactions)
            return
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
                if self._transactions is None:
                    self._producer.send(copy.partition, flight.batch, flight)
                else:
                    self._transactions.send(copy.partition, flight.batch, flight)
                self._unsettled_count[copy.partition] += 1
                self._unsettled_bytes[copy.partition] += len(flight.batch)
                if self._transactions is not None and self._failures_count[copy.partition]:
                    # What precedes a batch that the target refuses must not be rolled back with it for ever.
                    self._commit(self._transactions)
                    if not self._is_copying(copy):
                        return
            self._end_copy(copy)
        except WireError as error:
            self._stop(copy, f"the source's log cannot be read: {error}", is_final=True)
        except ClientError as error:
            self._stop(copy, str(error), retry_ms=0)

    def _is_copying(self, copy: PartitionCopy) -> bool:
        return copy.phase is Phase.COPYING and self._copies.get(copy.partition) is copy

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
            if not self._is_copying(copy):
                continue  # its flights are forgotten: the proof finds their records
            if result.status is DeliveryStatus.ACKNOWLEDGED and result.base_offset >= 0:
                self._on_stored(copy, flight, result.base_offset)
            else:
                self._on_not_stored(copy, result)
        if self._producer.is_stopped:
            # Its numbers are not trusted any more.  Everything is settled; copies with batches in flight were stopped.
            self._producer.close()
            self._producer = self._new_producer()

    def _on_not_stored(self, copy: PartitionCopy, result: BatchResult) -> None:
        is_refused = isinstance(result.error, ClientError) and not result.error.is_retriable
        # Only a mirror that keeps running can wait for a change of the target.
        is_final = is_refused and self._failures_max is not None and result.status is DeliveryStatus.REFUSED
        if self._transactions is not None and not self._failures_count[copy.partition]:
            # What precedes it was rolled back, too, and is committed first at the next attempt.
            is_final = False
        self._stop(copy, f"the target did not take it: {result.error}", is_final=is_final)

    def _on_stored(self, copy: PartitionCopy, flight: Flight, base_offset: int) -> None:
        try:
            unknown = copy.on_acknowledged(flight, base_offset)
        except OttlaError as error:
            self._stop(copy, str(error), retry_ms=0)
            return
        if self._transactions is None:
            self._explain(copy, unknown)
        else:
            # What others wrote can be read when this transaction has ended.
            self._unexplained += [(copy, each) for each in unknown]

    def _explain(self, copy: PartitionCopy, unknown: Sequence[range]) -> None:
        """Target offsets that the copy did not get: are they another mirror's, or others'?"""
        try:
            duplicates = sum(self._prover.explain(copy, each) for each in unknown)
        except OttlaError as error:
            self._stop(copy, str(error), is_final=isinstance(error, NeedsDecision), retry_ms=0)
            return
        if self._transactions is None:
            self._failures_count.pop(copy.partition, None)
        if duplicates:
            # It is at work at the same place: the records that it copies are found, and not copied again.
            self._stop(copy, "another mirror of this source copies it, too")

    def _explain_committed(self, transactions: CopyTransactions) -> None:
        unexplained, self._unexplained = self._unexplained, []
        if unexplained:
            transactions.wait_markers()
        for copy, unknown in unexplained:
            if self._is_copying(copy):
                self._explain(copy, [unknown])

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
        if self._transactions is not None:
            # The proof reads committed records, up to the target's end.
            self._commit(self._transactions)
            self._transactions.wait_markers()
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
        if self._transactions is not None:
            copy.on_progress_in_doubt()
            self._commit(self._transactions)
            copy.on_gone_back_stored()
            return True
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

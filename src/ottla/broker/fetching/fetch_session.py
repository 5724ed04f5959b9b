"""A fetch session (KIP-227): what a reader has requested and been sent, so that both sides name only what changed.

A session remembers each partition's request and the two ends that were last sent.  A partition is a *candidate* while
its part of the next response may be other than empty: there may be records, an error, or an end that moved.  It is
*waited out* while it answers with an error for which the reader waits, as for records: the error is sent with the next
response, which does not come earlier for it.  All others are settled: they wait in their partition's list of watchers
and cost nothing, however many they are, until it moves.  Those that are waited out wait there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from ottla.broker.fetching.fetch_read import FetchRead, Found, read_partitions
from ottla.broker.net.limits import PARTITIONS_OF_STEP, SESSION_READS_MAX
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_read import LEADER_ONLY, WAITED_OUT, ConsumerReader, PartitionRead, ReplicaReader
from ottla.broker.partitions.partition_table import PartitionLookup
from ottla.broker.partitions.waiting_requests import WaitingFetch, WakeOn
from ottla.model.error_code import ErrorCode
from ottla.model.partition_state import ReplicaIncarnation
from ottla.protocol.fetch import (
    FIRST_SESSION_EPOCH,
    NO_PREFERRED_REPLICA,
    FetchPartition,
    FetchRequest,
    next_session_epoch,
)
from ottla.runtime.steps import Steps, parts_of
from ottla.security.acl import ANONYMOUS

_UNSENT: Final = -1
_NO_ERROR: Final = 0
_NOT_AVAILABLE: Final = int(ErrorCode.OFFSET_NOT_AVAILABLE)


class SessionPartition:
    """One partition of a session.

    `fetch` is the last request for it.  The ends are those of the last response (-1: none, or an error).  `_partition`
    is where the records come from: it stays the deleted topic's until the reader has been sent that error, so a topic
    recreated under the name is never read in its place unnoticed.
    """

    __slots__ = ("_partition", "_sent_high_watermark", "_sent_log_start", "fetch", "index", "session", "topic")

    def __init__(self, session: FetchSession, topic: bytes, fetch: FetchPartition) -> None:
        self.session = session
        # Its name or id, as the session's requests have it.
        self.topic = topic
        self.index = fetch[0]
        self.fetch = fetch
        self._partition: Partition | None = None
        self._sent_high_watermark = _UNSENT
        self._sent_log_start = _UNSENT

    def find_partition(self, partitions: PartitionLookup) -> Found:
        """What to read, or the error that the reader must be sent."""
        if partitions.is_guarded and not partitions.allows(self.topic):
            # The right may have been revoked since the last fetch.
            return None, self.fetch, partitions.absence_error(self.topic, self.index)
        partition = self._partition
        if partition is None:
            partition = self._partition = partitions.get(self.topic, self.index)
            if partition is None:
                return None, self.fetch, partitions.absence_error(self.topic, self.index)
        elif not partition.is_served:
            # In its place there may be another topic's already.
            is_replaced = partitions.get(self.topic, self.index) is not None
            error = partitions.unknown_topic if is_replaced else partitions.absence_error(self.topic, self.index)
            return None, self.fetch, error
        return partition, self.fetch, _NO_ERROR

    def is_known(self, read: PartitionRead) -> bool:
        """Whether the reader has been sent the ends of `read` already."""
        return read.high_watermark == self._sent_high_watermark and read.log_start_offset == self._sent_log_start

    def is_at_end(self, read: PartitionRead) -> bool:
        """Whether it has nothing more to read: a consumer below the high watermark, a replica below the log's end."""
        if self.session.replica is None:
            return self.fetch[2] >= read.high_watermark
        return self._partition is not None and self.fetch[2] >= self._partition.log_end_offset

    def is_still(self, read: PartitionRead) -> bool:
        """Whether the partition is as it was when it gave `read`."""
        partition = self._partition
        return partition is not None and (partition.high_watermark, partition.log_start_offset) == (
            read.high_watermark,
            read.log_start_offset,
        )

    def note_sent(self, read: PartitionRead) -> None:
        """The reader has been sent `read`."""
        self._sent_high_watermark, self._sent_log_start = read.high_watermark, read.log_start_offset
        if read.error_code and self._partition is not None and not self._partition.is_served:
            # The reader knows that the topic was deleted: the next one of its name may be read.
            self._partition = None

    def on_readable(self) -> None:
        """An end of the partition moved, or it leaves this broker."""
        self.unwatch()
        self.session.mark(self)

    def on_watermark(self) -> None:
        """The high watermark moved, for a replica: the next response has it, whenever that comes."""
        if self.session.tells_watermarks:
            self.on_readable()
        else:
            self.session.add_candidate(self)

    def watch(self) -> None:
        """Mark this candidate when the partition moves next."""
        if self._partition is not None:
            is_consumers = self.session.replica is None
            self._partition.waiting.park_fetch(self, WakeOn.HIGH_WATERMARK if is_consumers else WakeOn.APPEND)

    def unwatch(self) -> None:
        if self._partition is not None:
            self._partition.waiting.forget_fetch(self)


class SessionRead(NamedTuple):
    """The partitions that must be in the response, in order of service; see `FetchRead` for the rest.

    `would_not_grow`: some run ends before its partition's readable end, in an older segment: waiting adds nothing.
    `has_news`: some partition has no records for the reader, but ends that it was not sent yet.
    """

    reads: list[tuple[SessionPartition, PartitionRead]]
    readable_bytes: int
    is_due: bool
    would_not_grow: bool
    has_news: bool = False

    def by_topic(self) -> list[tuple[bytes, list[PartitionRead]]]:
        """As a response lists them."""
        topics: dict[bytes, list[PartitionRead]] = {}
        for entry, read in self.reads:
            topics.setdefault(entry.topic, []).append(read)
        return list(topics.items())


class FetchSession:
    """One reader's session.  `epoch` is what its next request must have.

    `uses_topic_ids`: its requests name topics by id; all of them or none (KIP-516).  `principal`: of the connection
    that opened it; no other principal may use it.  `replica`: the follower, in one
    life of its broker, whose session it is; None for a consumer.  `tells_watermarks`: a replica that waits is woken
    when a high watermark moves, since consumers wait for it there.
    """

    __slots__ = (
        "_topics",
        "_waiting",
        "cached_size",
        "candidates",
        "created_ms",
        "epoch",
        "id",
        "is_closed",
        "is_privileged",
        "last_used_ms",
        "partitions_count",
        "principal",
        "replica",
        "tells_watermarks",
        "uses_topic_ids",
        "waited_out",
    )

    def __init__(
        self,
        session_id: int,
        now_ms: int,
        *,
        is_privileged: bool = False,
        uses_topic_ids: bool = False,
        principal: str = ANONYMOUS,
        replica: ReplicaIncarnation | None = None,
        tells_watermarks: bool = False,
        cached_size: int = 0,
    ) -> None:
        self.id = session_id
        self.is_privileged = is_privileged
        self.principal = principal
        self.replica = replica
        self.tells_watermarks = tells_watermarks
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = FIRST_SESSION_EPOCH
        # The cache's record of it: the partitions count at its last use; before the first, what it will be.
        self.cached_size = cached_size
        self.partitions_count = 0
        self.is_closed = False
        # The fetch of this session that waits for records.
        self._waiting: WaitingFetch | None = None
        # In the order in which they are read: a partition that gave records goes to the end, so that all get a turn.
        self.candidates: dict[SessionPartition, None] = {}
        # No candidate is among them.  Those that were sent their error longest ago come first.
        self.waited_out: dict[SessionPartition, None] = {}
        self._topics: dict[bytes, dict[int, SessionPartition]] = {}

    def __iter__(self) -> Iterator[SessionPartition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def put(self, topic: bytes, fetch: FetchPartition) -> SessionPartition:
        """Add a partition, or change its request."""
        partitions = self._topics.setdefault(topic, {})
        entry = partitions.get(fetch[0])
        if entry is None:
            entry = partitions[fetch[0]] = SessionPartition(self, topic, fetch)
            self.partitions_count += 1
        else:
            entry.fetch = fetch
        self._to_candidates(entry)
        return entry

    def update(
        self,
        topics: Sequence[tuple[bytes, Sequence[FetchPartition]]],
        forgotten: Sequence[tuple[bytes, Sequence[int]]],
    ) -> None:
        """Apply one request: partitions added or changed, then those removed."""
        for topic, wanted in topics:
            for fetch in wanted:
                self.put(topic, fetch)
        for topic, indexes in forgotten:
            for index in indexes:
                self._forget(topic, index)

    def update_steps(
        self,
        topics: Sequence[tuple[bytes, Sequence[FetchPartition]]],
        forgotten: Sequence[tuple[bytes, Sequence[int]]],
    ) -> Steps[None]:
        """`update` in steps, until the session is closed meanwhile."""
        for topic, wanted in topics:
            for some in parts_of(wanted, PARTITIONS_OF_STEP):
                if self.is_closed:
                    return
                self.update([(topic, some)], ())
                yield
        for topic, indexes in forgotten:
            for some_indexes in parts_of(indexes, PARTITIONS_OF_STEP):
                if self.is_closed:
                    return
                self.update((), [(topic, some_indexes)])
                yield

    def touch(self, now_ms: int) -> None:
        """A request used the session."""
        self.cached_size = self.partitions_count
        self.last_used_ms = now_ms

    def advance(self) -> None:
        """A request of the session was accepted: the next one must have the next epoch."""
        self.epoch = next_session_epoch(self.epoch)

    def mark(self, entry: SessionPartition) -> None:
        """Its part of the response may have changed."""
        self._to_candidates(entry)
        if self._waiting is not None:
            self._waiting.on_readable()

    def add_candidate(self, entry: SessionPartition) -> None:
        """Its part of the response may have changed, in a way for which no fetch waits."""
        if not self.is_closed:
            self._to_candidates(entry)

    def _to_candidates(self, entry: SessionPartition) -> None:
        self.candidates[entry] = None
        if self.waited_out:
            self.waited_out.pop(entry, None)

    def settle(self, entry: SessionPartition) -> None:
        """Its part of the response is empty until the partition moves or its request changes."""
        self.candidates.pop(entry, None)
        self.waited_out.pop(entry, None)
        if not self.is_closed:
            entry.watch()

    def wait_out(self, entry: SessionPartition) -> None:
        """Its part of the response is the same error until the partition moves or its request changes.

        It comes after the others that are waited out.
        """
        self.candidates.pop(entry, None)
        self.waited_out.pop(entry, None)
        if not self.is_closed:
            self.waited_out[entry] = None
            entry.watch()

    def move_to_end(self, entry: SessionPartition) -> None:
        """It gave records: the others are read before it."""
        self.candidates.pop(entry, None)
        self._to_candidates(entry)

    def read(
        self,
        partitions: PartitionLookup,
        limit_bytes: int,
        replica: ReplicaReader | None = None,
        consumer: ConsumerReader = LEADER_ONLY,
    ) -> SessionRead:
        """Read the candidates, at most `limit_bytes`; those whose part would be empty are settled.

        Those that are waited out are read after them, as many as one response has room for.  `replica`: the follower
        whose session it is, None for a consumer's.  Of a settled partition the follower has everything, and its
        position is known.
        """
        # More than are read at once come with the next response.  For those that are waited out it need not come early.
        would_not_grow = len(self.candidates) > SESSION_READS_MAX
        entries = list(islice(chain(self.candidates, self.waited_out), SESSION_READS_MAX))
        found = [entry.find_partition(partitions) for entry in entries]
        parts, readable_bytes, is_due = read_partitions(found, limit_bytes, replica, consumer)
        has_news = False
        reads: list[tuple[SessionPartition, PartitionRead]] = []
        for entry, (partition, fetch, _), read in zip(entries, found, parts, strict=True):
            if partition is None or read.preferred_replica != NO_PREFERRED_REPLICA:
                reads.append((entry, read))
                continue
            if self.waited_out and read.error_code != _NOT_AVAILABLE:
                self.add_candidate(entry)
            if read.run is not None:
                would_not_grow = would_not_grow or partition.ends_in_older_segment(
                    fetch[2], as_replica=replica is not None, reads_committed=consumer.reads_committed
                )
            elif read.error_code not in WAITED_OUT or read.diverging is not None:
                assert is_due
            elif read.error_code:
                # The error is sent when the fetch is answered.
                if entry not in self.waited_out:
                    self.wait_out(entry)
            elif replica is not None and 0 <= fetch[4] < read.log_start_offset:
                # At once: a deletion of records may wait until every replica has made it.
                is_due = True
            elif entry.is_known(read):
                if entry.is_at_end(read):
                    self.settle(entry)
                # Else it has records for which there was no room, or that are not committed: it stays a candidate.
                continue
            else:
                has_news = True
            reads.append((entry, read))
        return SessionRead(reads, readable_bytes, is_due, would_not_grow, has_news)

    def note_sent(self, read: SessionRead) -> None:
        """The response has been made: the next one leaves out what has not changed since."""
        for entry, part in read.reads:
            entry.note_sent(part)
            if part.error_code or part.preferred_replica != NO_PREFERRED_REPLICA:
                # Sent each time, after those that were not read.
                if part.error_code == _NOT_AVAILABLE and entry in self.waited_out:
                    self.wait_out(entry)
                else:
                    self.move_to_end(entry)
                continue
            if part.run is not None:
                self.move_to_end(entry)
            elif part.diverging is None and entry.is_at_end(part):
                self.settle(entry)

    def fill(self, partitions: PartitionLookup, request: FetchRequest, read: FetchRead) -> None:
        """Begin with a full request and what its response holds; others may have run since that was read."""
        reads: list[tuple[SessionPartition, PartitionRead]] = []
        for (topic, wanted), (_, parts) in zip(request.topics, read.topics, strict=True):
            for fetch, part in zip(wanted, parts, strict=True):
                entry = self.put(topic, fetch)
                entry.find_partition(partitions)
                reads.append((entry, part))
        self.note_sent(SessionRead(reads, 0, False, False))
        for entry, part in reads:
            if not entry.is_still(part):
                # It will not wake the session for what has moved already.
                self.add_candidate(entry)

    def park(self, fetch: WaitingFetch) -> None:
        """Wake `fetch` when a partition moves, and when the session is closed."""
        self._waiting = fetch
        self.watch_candidates()

    def unpark(self, fetch: WaitingFetch) -> None:
        # Another request of the session may wait by now.
        if self._waiting is fetch:
            self._waiting = None

    def watch_candidates(self) -> None:
        """While a fetch of the session waits, those with too few bytes must mark themselves when they have more."""
        for entry in self.candidates:
            entry.watch()

    def close(self) -> Steps[None]:
        """A waiting fetch is answered with what there is; the steps release all partitions."""
        self.is_closed = True
        if self._waiting is not None:
            self._waiting.on_readable()
        return self._release()

    def _release(self) -> Steps[None]:
        topics, self._topics = self._topics, {}
        while topics:
            _, partitions = topics.popitem()
            while partitions:
                for _ in range(min(PARTITIONS_OF_STEP, len(partitions))):
                    _, entry = partitions.popitem()
                    entry.unwatch()
                    self.candidates.pop(entry, None)
                    self.waited_out.pop(entry, None)
                yield

    def _forget(self, topic: bytes, index: int) -> None:
        partitions = self._topics.get(topic)
        entry = None if partitions is None else partitions.pop(index, None)
        if partitions is None or entry is None:
            return
        if not partitions:
            del self._topics[topic]
        self.partitions_count -= 1
        self.candidates.pop(entry, None)
        self.waited_out.pop(entry, None)
        entry.unwatch()

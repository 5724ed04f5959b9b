"""A fetch session (KIP-227): what a reader has requested and been sent, so that both sides name only what changed.

A session remembers each partition's request and the two ends that were last sent.  A partition is a *candidate* while
its part of the next response may be other than empty: there may be records, an error, or an end that moved.  It is
*waited out* while it answers with an error for which the reader waits, as for records: the error is sent with the next
response, which does not come earlier for it.  All others are settled: they wait in their partition's list of watchers
and cost nothing, however many they are, until it moves.  Those that are waited out wait there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ottla.broker.net.limits import PARTITIONS_OF_STEP
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_read import PartitionRead
from ottla.broker.partitions.partition_table import PartitionLookup
from ottla.broker.partitions.waiting_requests import WaitingFetch, WakeOn
from ottla.model.error_code import ErrorCode
from ottla.model.partition_state import ReplicaIncarnation
from ottla.protocol.fetch import FetchPartition
from ottla.runtime.steps import Steps, parts_of
from ottla.security.acl import ANONYMOUS

FIRST_EPOCH: Final = 1
_EPOCH_MAX: Final = 2**31 - 1
_UNSENT: Final = -1


def next_epoch(epoch: int) -> int:
    """Epochs count a session's requests and continue with 1 after the greatest: 0 would open another session."""
    return FIRST_EPOCH if epoch >= _EPOCH_MAX else epoch + 1


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

    def find_partition(self, partitions: PartitionLookup) -> Partition | ErrorCode:
        """What to read, or the error that the reader must be sent."""
        if partitions.is_guarded and not partitions.allows(self.topic):
            # The right may have been revoked since the last fetch.
            return partitions.absence_error(self.topic, self.index)
        partition = self._partition
        if partition is None:
            partition = self._partition = partitions.get(self.topic, self.index)
            if partition is None:
                return partitions.absence_error(self.topic, self.index)
        elif not partition.is_served:
            # In its place there may be another topic's already.
            is_replaced = partitions.get(self.topic, self.index) is not None
            return partitions.unknown_topic if is_replaced else partitions.absence_error(self.topic, self.index)
        return partition

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
        self.epoch = FIRST_EPOCH
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
        self.epoch = next_epoch(self.epoch)

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

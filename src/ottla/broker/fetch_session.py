"""A fetch session (KIP-227): what a reader has asked for and been told, so that both sides name only what changed.

A session remembers each partition's request and the two ends that were last sent.  A partition is a *candidate* while
its part of the next answer may differ from nothing: there may be records, an error, or an end that moved.  All others
are settled: they wait in their partition's list of watchers and cost nothing, whatever their number, until it moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from ottla.broker.partition import Partition
from ottla.protocol.fetch import FetchPartition

FIRST_EPOCH: Final = 1
_EPOCH_MAX: Final = 2**31 - 1
_UNSENT: Final = -1


def next_epoch(epoch: int) -> int:
    """Epochs count a session's requests and go on with 1 behind the greatest: 0 would open another session."""
    return FIRST_EPOCH if epoch >= _EPOCH_MAX else epoch + 1


class SessionWaiter(Protocol):
    """The fetch of a session that waits for records."""

    def on_readable(self) -> None: ...


class SessionPartition:
    """One partition of a session.

    `fetch` is what was asked last; `sent_*` what the last answer said (-1: nothing, or an error).  `partition` is where
    the records come from: it stays the deleted topic's until the reader has been told that it is gone, so a topic made
    anew under the name is never read in its place unnoticed.
    """

    __slots__ = ("fetch", "index", "name_bytes", "partition", "sent_high_watermark", "sent_log_start", "session")

    def __init__(self, session: FetchSession, name_bytes: bytes, fetch: FetchPartition) -> None:
        self.session = session
        self.name_bytes = name_bytes
        self.index = fetch[0]
        self.fetch = fetch
        self.partition: Partition | None = None
        self.sent_high_watermark = _UNSENT
        self.sent_log_start = _UNSENT

    def on_readable(self) -> None:
        """The partition moved, or goes away."""
        if self.partition is not None:
            self.partition.forget_fetch(self)
        self.session.mark(self)

    def watch(self) -> None:
        """Be told of the next move."""
        if self.partition is not None:
            self.partition.park_fetch(self)

    def unwatch(self) -> None:
        if self.partition is not None:
            self.partition.forget_fetch(self)


class FetchSession:
    """One reader's session.  `epoch` is what its next request must carry."""

    __slots__ = (
        "_topics",
        "cached_size",
        "candidates",
        "created_ms",
        "epoch",
        "id",
        "is_closed",
        "is_privileged",
        "last_used_ms",
        "partitions_count",
        "waiting",
    )

    def __init__(self, session_id: int, now_ms: int, *, is_privileged: bool = False) -> None:
        self.id = session_id
        self.is_privileged = is_privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = FIRST_EPOCH
        # As the cache knows it: the partitions count at its last use.
        self.cached_size = 0
        self.partitions_count = 0
        self.is_closed = False
        self.waiting: SessionWaiter | None = None
        # In the order in which they are served: whoever got records goes to the end, so that all get their turn.
        self.candidates: dict[SessionPartition, None] = {}
        self._topics: dict[bytes, dict[int, SessionPartition]] = {}

    def __iter__(self) -> Iterator[SessionPartition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def put(self, name_bytes: bytes, fetch: FetchPartition) -> SessionPartition:
        """Add a partition, or change what is asked of it."""
        partitions = self._topics.setdefault(name_bytes, {})
        entry = partitions.get(fetch[0])
        if entry is None:
            entry = partitions[fetch[0]] = SessionPartition(self, name_bytes, fetch)
            self.partitions_count += 1
        else:
            entry.fetch = fetch
        self.candidates[entry] = None
        return entry

    def update(
        self,
        topics: Sequence[tuple[bytes, Sequence[FetchPartition]]],
        forgotten: Sequence[tuple[bytes, Sequence[int]]],
    ) -> None:
        """What one request changes: partitions added or asked anew, then those taken out."""
        for name_bytes, wanted in topics:
            for fetch in wanted:
                self.put(name_bytes, fetch)
        for name_bytes, indexes in forgotten:
            for index in indexes:
                self._forget(name_bytes, index)

    def mark(self, entry: SessionPartition) -> None:
        """Its part of the answer may have changed."""
        self.candidates[entry] = None
        if self.waiting is not None:
            self.waiting.on_readable()

    def settle(self, entry: SessionPartition) -> None:
        """Its part of the answer is empty until the partition moves or something else is asked of it."""
        self.candidates.pop(entry, None)
        if not self.is_closed:
            entry.watch()

    def move_behind(self, entry: SessionPartition) -> None:
        """It got records: the others are served before it."""
        self.candidates.pop(entry, None)
        self.candidates[entry] = None

    def watch_candidates(self) -> None:
        """While the session waits, those that have too little must tell when they have more."""
        for entry in self.candidates:
            entry.watch()

    def close(self) -> None:
        """Let go of all partitions; a fetch that waits is answered with what there is."""
        self.is_closed = True
        for entry in self:
            entry.unwatch()
        if self.waiting is not None:
            self.waiting.on_readable()

    def _forget(self, name_bytes: bytes, index: int) -> None:
        partitions = self._topics.get(name_bytes)
        entry = None if partitions is None else partitions.pop(index, None)
        if partitions is None or entry is None:
            return
        if not partitions:
            del self._topics[name_bytes]
        self.partitions_count -= 1
        self.candidates.pop(entry, None)
        entry.unwatch()

"""The requests that wait for an end of a partition to move: produces, fetches, deletions of records."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ottla.replication.replica import Replica
from ottla.storage.log.log import Log

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1


class ParkedProduce(Protocol):
    """A produce request that waits for some of its batches.  Each batch has a slot, released or failed once."""

    def release(self, slot: int) -> None:
        """The batch of this slot may be acknowledged."""
        ...

    def fail(self, slot: int, error_code: int) -> None:
        """The batch of this slot will not be acknowledged by this broker."""
        ...

    def is_expired(self, now_ms: int) -> bool:
        """Whether the request still waits and its time-out has passed, by the monotonic clock."""
        ...

    def expire(self) -> None:
        """Answer now: the time-out has passed."""
        ...


class ParkedProduces(deque[tuple[int, ParkedProduce, int]]):
    """Produces that wait until a partition's end has passed their batches: (required end, produce, slot).

    They are kept in append order, so that a move of the end releases them with one comparison each: no task, future or
    timer for any of them.
    A duplicate's required end is not above its predecessors': it is released with them, at most one flush later than
    it could be.
    """

    __slots__ = ()

    def release(self, end_offset: int) -> None:
        """Release the produces whose required end is `end_offset` or less."""
        while self and self[0][0] <= end_offset:
            _, produce, slot = self.popleft()
            produce.release(slot)

    def fail_above(self, end_offset: int, error_code: int) -> None:
        """Fail the produces whose required end is above `end_offset`, and keep the others."""
        parked = list(self)
        self.clear()
        self.extend(each for each in parked if each[0] <= end_offset)
        for required_end, produce, slot in parked:
            if required_end > end_offset:
                produce.fail(slot, error_code)

    def fail_all(self, error_code: int) -> None:
        """Fail every produce."""
        self.fail_above(-1, error_code)

    def expire(self, now_ms: int) -> None:
        """Answer the requests whose time-out has passed; their slots stay queued, and their release does nothing."""
        for _, produce, _ in list(self):
            if produce.is_expired(now_ms):
                produce.expire()


class WakeOn(enum.Enum):
    """What a parked fetch waits for: consumers for the high watermark, replicas for the log's end."""

    HIGH_WATERMARK = "high watermark"
    APPEND = "append"


class WaitingFetch(Protocol):
    """A fetch request that waits for records in some of its partitions."""

    def on_readable(self) -> None:
        """An end of one of its partitions moved, or the partition leaves this broker."""
        ...

    def on_watermark(self) -> None:
        """The high watermark moved: a fetch that waits for appends reports it, but is not answered for it alone."""
        ...


class WaitingRequests:
    """Those of one partition, which reports to them the moves of its ends, and that it leaves this broker.

    The partition reads the queues, which are empty as a rule, so that a move for which no request waits costs no call.
    """

    __slots__ = ("_log", "_replica", "deletions", "for_all", "for_append", "for_leader", "for_watermark")

    def __init__(self, log: Log, replica: Replica) -> None:
        self._log: Final = log
        self._replica: Final = replica
        # Made when the first request of their kind waits: a thousand idle partitions hold no queue.
        self.for_leader: ParkedProduces | None = None
        self.for_all: ParkedProduces | None = None
        self.for_append: dict[WaitingFetch, None] | None = None
        # By what is called at their end: the low watermark that they wait for.
        self.deletions: dict[Callable[[int], None], int] | None = None
        self.for_watermark: Final[dict[WaitingFetch, None]] = {}

    @property
    def produces_count(self) -> int:
        """Batches of which a produce request waits for the acknowledgement."""
        return len(self.for_leader or ()) + len(self.for_all or ())

    @property
    def has_produces(self) -> bool:
        return bool(self.for_leader or self.for_all)

    def park_produce(self, required_end: int, acks: int, produce: ParkedProduce, slot: int) -> None:
        """Release `slot` of `produce` once its `acks` is met up to `required_end`, as `Partition.append` gave it.

        acks=1 is met at this replica's stable end, acks=all at the high watermark.
        """
        if acks == ACKS_ALL:
            assert required_end > self._replica.high_watermark
            parked = self.for_all
            if parked is None:
                parked = self.for_all = ParkedProduces()
        else:
            assert required_end > self._log.stable_end
            parked = self.for_leader
            if parked is None:
                parked = self.for_leader = ParkedProduces()
        parked.append((required_end, produce, slot))

    def fail_produces(self, error_code: int, *, above: int = -1) -> None:
        """Fail the produces whose required end is above this offset; all of them, if none is given."""
        for parked in (self.for_leader, self.for_all):
            if parked:
                parked.fail_above(above, error_code)

    def expire_produces(self, now_ms: int) -> None:
        """Answer the produces whose time-out has passed, by the monotonic clock."""
        for parked in (self.for_leader, self.for_all):
            if parked:
                parked.expire(now_ms)

    def park_fetch(self, fetch: WaitingFetch, wake_on: WakeOn = WakeOn.HIGH_WATERMARK) -> None:
        """Wake `fetch` at each move of what it waits for, until `forget_fetch`."""
        if wake_on is WakeOn.HIGH_WATERMARK:
            self.for_watermark[fetch] = None
            return
        if self.for_append is None:
            self.for_append = {}
        self.for_append[fetch] = None

    def forget_fetch(self, fetch: WaitingFetch) -> None:
        self.for_watermark.pop(fetch, None)
        if self.for_append:
            self.for_append.pop(fetch, None)

    def wake_fetches(self) -> None:
        """Wake every parked fetch: the log start moved, or another change that readers see."""
        wake(self.for_watermark)
        if self.for_append:
            wake(self.for_append)

    def park_deletion(self, before_offset: int, on_ended: Callable[[int], None]) -> None:
        """Call `on_ended` once: with 0 when the low watermark has reached `before_offset`, or with an error's code."""
        assert self._replica.low_watermark < before_offset
        if self.deletions is None:
            self.deletions = {}
        self.deletions[on_ended] = before_offset

    def forget_deletion(self, on_ended: Callable[[int], None]) -> None:
        if self.deletions:
            self.deletions.pop(on_ended, None)

    def end_deletions(self, error_code: int, low_watermark: int | None = None) -> None:
        """All of them, or those that `low_watermark` has reached."""
        for on_ended, before_offset in list((self.deletions or {}).items()):
            if low_watermark is None or before_offset <= low_watermark:
                self.forget_deletion(on_ended)
                on_ended(error_code)

    def fail(self, error_code: int) -> None:
        """Answer every request that waits: the log's directory failed, or the partition leaves this broker."""
        self.fail_produces(error_code)
        self.end_deletions(error_code)
        self.wake_fetches()


def wake(waiters: dict[WaitingFetch, None]) -> None:
    """Wake each of these fetches."""
    # A copy: a fetch that is woken may forget its partitions.
    for fetch in list(waiters):
        fetch.on_readable()

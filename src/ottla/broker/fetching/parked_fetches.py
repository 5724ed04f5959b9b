"""Fetches that found too little and wait.  Each ends once: by records, by its deadline, or with its connection.

A partition that moves only marks the fetches that wait for it; each reads again once, at the end of the loop's turn,
however many partitions have moved.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import PARKED_FETCHES_MAX, PARKED_PARTITIONS_MAX
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.partitions.waiting_requests import WaitingFetch

Read = TypeVar("Read")


class Expiring(Protocol):
    """Something that ends at its deadline unless it ended before."""

    @property
    def is_over(self) -> bool: ...

    def on_expired(self) -> None: ...


class FetchDeadlines:
    """Calls `on_expired` of each entry that has not ended by its deadline.

    Entries that ended early stay in the heap until their deadline (a fetch waits 500 ms, so few accumulate) and are
    dropped early when they are the majority.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Expiring]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = float("inf")
        self._prune_at = 1_024

    @property
    def waiting_count(self) -> int:
        """Entries held, including those that have ended."""
        return len(self._heap)

    @property
    def has_room(self) -> bool:
        return len(self._heap) < PARKED_FETCHES_MAX

    def add(self, waiting: Expiring, delay_ms: int) -> None:
        due_s = self._loop.time() + delay_ms / 1000
        self._sequence += 1
        heapq.heappush(self._heap, (due_s, self._sequence, waiting))
        if len(self._heap) > self._prune_at:
            self._prune()
        if due_s < self._timer_due_s:
            self._arm(due_s)

    def expire_all(self) -> None:
        """Expire every entry now: the broker stops."""
        heap, self._heap = self._heap, []
        for _, _, waiting in sorted(heap):
            if not waiting.is_over:
                waiting.on_expired()

    def cancel(self) -> None:
        """Stop the timer; nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_at(due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_due_s = float("inf")
        # The loop's timers have a resolution: what is due within it is due now.
        now_s = self._loop.time() + 0.001
        heap = self._heap
        try:
            while heap and (heap[0][0] <= now_s or heap[0][2].is_over):
                _, _, waiting = heapq.heappop(heap)
                if not waiting.is_over:
                    waiting.on_expired()
        finally:
            # Even if one of them fails, the others must not wait for ever.
            if heap:
                self._arm(heap[0][0])

    def _prune(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].is_over]
        heapq.heapify(self._heap)
        self._prune_at = max(1_024, 2 * len(self._heap))


class FetchPlan(Protocol[Read]):
    """How one fetch request is served: all its partitions at once, or those of a session that have changed."""

    def read(self) -> Read:
        """Read what the partitions have now."""
        ...

    def is_enough(self, read: Read) -> bool:
        """Whether the response need not wait: it is large enough, has an error, or would not grow by waiting."""
        ...

    def response(self, read: Read) -> Sequence[Piece]:
        """The whole response frame; called once."""
        ...

    def park(self, fetch: WaitingFetch) -> int:
        """Let the partitions wake `fetch`, and drop what is not read again; the count of places that hold it."""
        ...

    def stay_parked(self) -> None:
        """Too little was read: partitions that have woken the fetch must do so again."""
        ...

    def unpark(self, fetch: WaitingFetch) -> None:
        """No partition holds `fetch` any more."""
        ...


class ParkedFetches:
    """All fetches that wait, bounded by the partitions that hold them."""

    __slots__ = ("_deadlines", "_ready", "fetches_count", "partitions_count")

    def __init__(self, ready: ReadyConnections, deadlines: FetchDeadlines) -> None:
        self._ready = ready
        self._deadlines = deadlines
        self.fetches_count = 0
        self.partitions_count = 0

    @property
    def has_room(self) -> bool:
        return self._deadlines.has_room and self.partitions_count < PARKED_PARTITIONS_MAX

    def park(self, plan: FetchPlan[Read], answer: Answer, max_wait_ms: int) -> None:
        """Answer when the plan has enough, or after `max_wait_ms` with what it has then."""
        fetch = ParkedFetch(plan, answer, self)
        self.begin(fetch, fetch.partitions_count, max_wait_ms)

    def begin(self, waiting: Expiring, partitions_count: int, max_wait_ms: int) -> None:
        """A fetch waits, held by so many partitions."""
        self.fetches_count += 1
        self.partitions_count += partitions_count
        self._deadlines.add(waiting, max_wait_ms)

    def wake(self, fetch: ParkedFetch[Read]) -> None:
        self._ready.wake(fetch)

    def end(self, partitions_count: int) -> None:
        """It waits no more."""
        self.fetches_count -= 1
        self.partitions_count -= partitions_count

    def send(self, connection: Connection) -> None:
        """The connection has an answer to send."""
        self._ready.add(connection)


class ParkedFetch(Generic[Read]):
    """One fetch that waits."""

    __slots__ = ("_answer", "_owner", "_plan", "partitions_count")

    def __init__(self, plan: FetchPlan[Read], answer: Answer, owner: ParkedFetches) -> None:
        # None once it has ended: its deadline keeps this object until it is due, but not its plan.
        self._plan: FetchPlan[Read] | None = plan
        self._answer = answer
        self._owner = owner
        self.partitions_count = plan.park(self)
        answer.connection.watch_close(self.cancel)

    @property
    def is_over(self) -> bool:
        return self._plan is None

    def on_readable(self) -> None:
        """A partition's end moved, or the partition leaves this broker."""
        self._owner.wake(self)

    def on_watermark(self) -> None:
        """It reads again when there are records, or in the end; then its answer has the high watermark."""

    def read_again(self) -> None:
        """Read again, and answer when it is enough."""
        plan = self._plan
        if plan is None:
            return
        read = plan.read()
        if plan.is_enough(read):
            self._finish(plan, read)
        else:
            plan.stay_parked()

    def on_expired(self) -> None:
        plan = self._plan
        assert plan is not None
        self._finish(plan, plan.read())

    def cancel(self) -> None:
        """The connection was closed, or the answer is on its way."""
        plan, self._plan = self._plan, None
        assert plan is not None
        plan.unpark(self)
        self._owner.end(self.partitions_count)

    def _finish(self, plan: FetchPlan[Read], read: Read) -> None:
        self.cancel()
        connection = self._answer.connection
        connection.unwatch_close()
        if not connection.is_closed:
            self._answer.complete(plan.response(read))
            self._owner.send(connection)

"""Fetches that found too little and wait.  Each ends once: by records, by its deadline, or with its connection.

A partition that moves only marks the fetches that wait for it; each reads again once, at the end of the loop's turn,
however many partitions have moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from ottla.broker.fetching.deadlines import Expiring, FetchDeadlines
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import PARKED_PARTITIONS_MAX
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.partitions.waiting_requests import WaitingFetch

Read = TypeVar("Read")


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

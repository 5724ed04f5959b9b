"""Full fetches that name many partitions: each is read in steps, in its own task, and waits as the others do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.broker.fetching.fetch_plans import FullFetch
from ottla.broker.fetching.fetch_read import FetchRead, fetch_response_steps, in_parts, joined_steps
from ottla.broker.fetching.limited_fetch import throttled
from ottla.broker.fetching.parked_fetches import ParkedFetches
from ottla.broker.net.client_quotas import ClientQuotas
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.large_requests import Turn
from ottla.broker.net.limits import PARTITIONS_OF_STEP
from ottla.broker.net.outbox import Piece
from ottla.broker.partitions.waiting_requests import WaitingFetch
from ottla.protocol.fetch import NEW_SESSION_EPOCH, NO_SESSION
from ottla.runtime.loop_offload import paced
from ottla.runtime.steps import Steps, parts_of


class LargeFetch:
    """Serves a full fetch in steps, a part of its partitions in each."""

    __slots__ = ("_fetch", "_quotas")

    def __init__(self, fetch: FullFetch, quotas: ClientQuotas | None = None) -> None:
        """`quotas`: those of a consumer that has any."""
        self._fetch = fetch
        self._quotas = quotas

    def read(self) -> Steps[list[FetchRead]]:
        """The parts, each with the bytes of those before it."""
        reads: list[FetchRead] = []
        readable_bytes = 0
        for part in in_parts(self._fetch.request):
            reads.append(self._fetch.read(part, readable_bytes))
            readable_bytes = reads[-1].readable_bytes
            yield
        if self._fetch.replica is not None:
            self._fetch.replica.count()
        return reads

    def is_enough(self, reads: Sequence[FetchRead]) -> Steps[bool]:
        for part, read in zip(in_parts(self._fetch.request), reads, strict=True):
            yield
            if self._fetch.is_enough(read, part):
                return True
        return not reads

    def response(self, reads: Sequence[FetchRead]) -> Steps[Sequence[Piece]]:
        fetch, request = self._fetch, self._fetch.request
        throttle_ms = 0
        if self._quotas is not None:
            may_send, throttle_ms = self._quotas.fetched(reads[-1].readable_bytes if reads else 0)
            if not may_send:
                return throttled(fetch.empty_response(), fetch.version, throttle_ms)
        session_id = NO_SESSION
        if request.session_epoch == NEW_SESSION_EPOCH:
            parts = zip(in_parts(request), reads, strict=True)
            session_id = yield from fetch.service.open_session(fetch, parts)
        if reads:
            fetch.service.note_sent(reads[-1].readable_bytes)
        topics = yield from joined_steps(read.topics for read in reads)
        leaders = None
        if any(read.is_due for read in reads):
            leaders = fetch.leaders(topics)
            yield
        pieces = yield from fetch_response_steps(
            request, fetch.version, fetch.correlation_id, topics, session_id, leaders
        )
        return throttled(pieces, fetch.version, throttle_ms)

    def park(self, waiting: WaitingFetch) -> Steps[int]:
        """Let the partitions wake it; the count of those.  `unpark` is right after each step."""
        fetch = self._fetch
        fetch.drop_what_is_read()
        for part in in_parts(fetch.request):
            fetch.hold_part(part, waiting)
            yield
        return len(fetch.held_by)

    def unpark(self, waiting: WaitingFetch) -> Steps[None]:
        for some in parts_of(self._fetch.held_by, PARTITIONS_OF_STEP):
            for partition in some:
                partition.waiting.forget_fetch(waiting)
            yield


class LargeFetches:
    """While they wait they count among the parked ones."""

    __slots__ = ("_parked",)

    def __init__(self, parked: ParkedFetches) -> None:
        self._parked = parked

    async def serve(self, answer: Answer, plan: LargeFetch, max_wait_ms: int, turn: Turn) -> None:
        """Answer when the plan has enough, or after `max_wait_ms` with what it has then; it waits out of its `turn`."""
        connection = answer.connection
        read = await paced(plan.read())
        if max_wait_ms > 0 and self._parked.has_room and not await paced(plan.is_enough(read)):
            read = await self._read_when_enough(connection, plan, max_wait_ms, turn)
        if connection.is_closed:
            return
        pieces = await paced(plan.response(read))
        if not connection.is_closed:
            answer.complete(pieces)
            self._parked.send(connection)

    async def _read_when_enough(
        self, connection: Connection, plan: LargeFetch, max_wait_ms: int, turn: Turn
    ) -> list[FetchRead]:
        wait = _Wait()
        connection.watch_close(wait.on_readable)
        try:
            held_count = await paced(plan.park(wait))
            self._parked.begin(wait, held_count, max_wait_ms)
            try:
                return await self._read_until_enough(connection, plan, wait, turn)
            finally:
                wait.is_over = True
                self._parked.end(held_count)
        finally:
            connection.unwatch_close()
            await paced(plan.unpark(wait))

    async def _read_until_enough(
        self, connection: Connection, plan: LargeFetch, wait: _Wait, turn: Turn
    ) -> list[FetchRead]:
        while not connection.is_closed:
            # What comes from here on wakes it; what came before all partitions held it is read now.
            wait.forget()
            # A broker that stops expires those that wait already.
            is_last = wait.is_expired or connection.is_draining
            read = await paced(plan.read())
            if is_last or await paced(plan.is_enough(read)):
                return read
            del read
            await turn.leave_for(wait.woken())
        return []


class _Wait:
    """Is woken by the partitions of a fetch, by its deadline, and when its connection closes."""

    __slots__ = ("_woken", "is_expired", "is_over")

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self.is_expired = False
        self.is_over = False

    def on_readable(self) -> None:
        self._woken.set()

    def on_watermark(self) -> None:
        """As of every parked fetch: it reads again when there are records, or in the end."""

    def on_expired(self) -> None:
        self.is_expired = True
        self._woken.set()

    def forget(self) -> None:
        self._woken.clear()

    async def woken(self) -> None:
        await self._woken.wait()

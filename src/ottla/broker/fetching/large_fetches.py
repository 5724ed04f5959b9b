"""Full fetches that name many partitions: each is read in steps, by a task of its own, and waits as the others do."""

from __future__ import annotations

import asyncio

from ottla.broker.fetching.fetch_plans import FullFetch
from ottla.broker.fetching.fetch_read import FetchRead
from ottla.broker.fetching.parked_fetches import ParkedFetches
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.large_requests import Turn
from ottla.runtime.loop_offload import paced


class LargeFetches:
    """While they wait they count among the parked ones."""

    __slots__ = ("_parked",)

    def __init__(self, parked: ParkedFetches) -> None:
        self._parked = parked

    async def serve(self, answer: Answer, plan: FullFetch, max_wait_ms: int, turn: Turn) -> None:
        """Answer when the plan has enough, or after `max_wait_ms` with what it has then; it waits out of its `turn`."""
        connection = answer.connection
        read = await paced(plan.read_steps())
        if max_wait_ms > 0 and self._parked.has_room and not await paced(plan.is_enough_steps(read)):
            read = await self._read_when_enough(connection, plan, max_wait_ms, turn)
        if connection.is_closed:
            return
        pieces = await paced(plan.response_steps(read))
        if not connection.is_closed:
            answer.complete(pieces)
            self._parked.send(connection)

    async def _read_when_enough(
        self, connection: Connection, plan: FullFetch, max_wait_ms: int, turn: Turn
    ) -> list[FetchRead]:
        wait = _Wait()
        connection.watch_close(wait.on_readable)
        try:
            held_count = await paced(plan.park_steps(wait))
            self._parked.begin(wait, held_count, max_wait_ms)
            try:
                return await self._read_until_enough(connection, plan, wait, turn)
            finally:
                wait.is_over = True
                self._parked.end(held_count)
        finally:
            connection.unwatch_close()
            await paced(plan.unpark_steps(wait))

    async def _read_until_enough(
        self, connection: Connection, plan: FullFetch, wait: _Wait, turn: Turn
    ) -> list[FetchRead]:
        while not connection.is_closed:
            # What comes from here on wakes it; what came before all partitions held it is read now.
            wait.forget()
            # A broker that stops expires those that wait already.
            is_last = wait.is_expired or connection.is_draining
            read = await paced(plan.read_steps())
            if is_last or await paced(plan.is_enough_steps(read)):
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

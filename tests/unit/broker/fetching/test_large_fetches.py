"""Fetches that are read in steps: what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ottla.broker.fetching.large_fetches import LargeFetches
from ottla.broker.fetching.parked_fetches import FetchDeadlines, ParkedFetches
from ottla.broker.net.connection import Connection
from ottla.broker.net.large_requests import Turn
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.net.request_tasks import RequestTasks
from ottla.protocol.primitives import RequestBytes
from ottla.runtime.steps import Steps
from tests.unit.broker.turned_loop import connected_pair

TURNS = 20
HOUR_MS = 3_600_000


class EmptyPlan:
    """A fetch that never finds enough; counts how often it reads."""

    def __init__(self) -> None:
        self.reads_count = 0
        self.is_parked = False

    def read(self) -> Steps[list[Any]]:
        self.reads_count += 1
        yield
        return []

    def is_enough(self, read: Sequence[Any]) -> Steps[bool]:
        yield
        return False

    def park(self, fetch: object) -> Steps[int]:
        self.is_parked = True
        yield
        return 1

    def unpark(self, fetch: object) -> Steps[None]:
        yield
        self.is_parked = False

    def response(self, read: Sequence[Any]) -> Steps[Sequence[Piece]]:
        yield
        return (b"answer",)


class Served:
    """One connection, and what serves its large fetches."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.client, server = connected_pair()
        self.connection = Connection(
            server,
            loop,
            self,
            ReceiveBudget(1 << 20),
            1 << 20,
            lambda _: None,
        )
        self.parked = ParkedFetches(ReadyConnections(loop), FetchDeadlines(loop))
        self.plan = EmptyPlan()
        self.tasks = RequestTasks()

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        raise AssertionError("nothing is sent")

    def fetch(self) -> None:
        large, answer = LargeFetches(self.parked), self.connection.park(exclusive=True)
        self.tasks.start(self.connection, large.serve(answer, self.plan, HOUR_MS, Turn(None)))  # type: ignore[arg-type]

    async def turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


@asynccontextmanager
async def served_connection() -> AsyncIterator[Served]:
    made = Served()
    try:
        yield made
    finally:
        made.connection.close("the test ended")
        await made.turn()
        made.client.close()


async def test_fetch_is_not_read_for_a_peer_that_has_gone() -> None:
    async with served_connection() as served:
        served.fetch()
        await served.turn()
        reads_count = served.plan.reads_count
        assert (served.parked.fetches_count, served.plan.is_parked) == (1, True)
        served.connection.close("the peer closed")
        await served.turn()
        assert (served.parked.fetches_count, served.plan.is_parked) == (0, False)
        assert served.plan.reads_count == reads_count


async def test_fetch_that_comes_to_wait_when_the_broker_has_begun_to_stop_is_answered() -> None:
    async with served_connection() as served:
        served.fetch()
        served.connection.drain()
        await served.turn()
        assert served.client.recv(100) == b"answer"
        assert served.connection.is_closed

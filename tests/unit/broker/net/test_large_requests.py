"""Large requests of one API are in memory a few at a time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ottla.broker.net import large_requests
from ottla.broker.net.connection import Answer, Connection
from ottla.broker.net.limits import IN_STEPS_BYTES, LARGE_REQUEST_BYTES, LARGE_REQUESTS_AT_ONCE
from ottla.broker.net.outbox import Piece
from ottla.broker.net.ready_connections import ReadyConnections
from ottla.broker.net.receive_buffer import ReceiveBudget
from ottla.broker.router import Router
from ottla.protocol.api import ApiKey
from ottla.protocol.frame import RequestHeader, request_frame
from tests.unit.broker.turned_loop import connected_pair

FLOOD = 3 * LARGE_REQUESTS_AT_ONCE
TURNS = 20


class Nothing:
    """Handlers that are not asked."""

    def handle(self, *_: object) -> None:
        raise AssertionError

    async def handle_large(
        self, header: RequestHeader, body: memoryview, connection: Connection, answer: Answer
    ) -> None:
        raise AssertionError


class Flood:
    """Connections that all send one large request; the test ends those that are served."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.served: list[tuple[Connection, asyncio.Future[None]]] = []
        nothing = Nothing()
        router = Router(nothing, nothing, nothing, (), self._serve, ReadyConnections(loop))
        self._connected = partial(Connection, loop=loop, router=router, budget=ReceiveBudget(1 << 24))
        self.clients: list[socket.socket] = []
        self.connections: list[Connection] = []
        for _ in range(FLOOD):
            self.connect()

    def connect(self) -> tuple[socket.socket, Connection]:
        client, server = connected_pair()
        connection = self._connected(server, request_bytes_max=1 << 24, on_closed=lambda _: None)
        self.clients.append(client)
        self.connections.append(connection)
        return client, connection

    async def _serve(
        self, header: RequestHeader, body: bytes | memoryview, connection: Connection
    ) -> tuple[Piece, ...]:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.served.append((connection, ended))
        await ended
        connection.let_go()
        return (b"answer",)

    async def send(self, api: ApiKey, size_bytes: int = LARGE_REQUEST_BYTES + 1) -> None:
        for client in self.clients:
            client.sendall(request_frame(api, 1, 5, "flood", bytes(size_bytes)))
        await self.turn()

    async def turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    @property
    def in_service(self) -> list[Connection]:
        return [connection for connection, ended in self.served if not ended.done()]

    async def end_all(self) -> None:
        while self.in_service:
            for _, ended in self.served:
                if not ended.done():
                    ended.set_result(None)
            await self.turn()


@asynccontextmanager
async def flood() -> AsyncIterator[Flood]:
    made = Flood()
    try:
        yield made
    finally:
        await made.end_all()
        for each in made.connections:
            each.close("the test ended")
        for client in made.clients:
            client.close()


async def test_large_requests_of_one_api_wait_for_one_another() -> None:
    async with flood() as clients:
        await clients.send(ApiKey.DELETE_TOPICS)
        assert clients.in_service == clients.connections[:LARGE_REQUESTS_AT_ONCE]
        clients.served[0][1].set_result(None)
        await clients.turn()
        assert clients.in_service == clients.connections[1 : LARGE_REQUESTS_AT_ONCE + 1]
        await clients.end_all()
        assert [connection for connection, _ in clients.served] == clients.connections


async def test_large_requests_do_not_wait_for_those_of_another_api() -> None:
    async with flood() as clients:
        await clients.send(ApiKey.DELETE_TOPICS)
        client, connection = clients.connect()
        client.sendall(request_frame(ApiKey.DELETE_RECORDS, 1, 5, "other", bytes(LARGE_REQUEST_BYTES + 1)))
        await clients.turn()
        assert connection in clients.in_service


async def test_requests_that_take_little_memory_do_not_wait() -> None:
    async with flood() as clients:
        await clients.send(ApiKey.DELETE_TOPICS, IN_STEPS_BYTES + 1)
        assert clients.in_service == clients.connections


async def test_large_request_of_a_peer_that_went_while_it_waited_is_not_served() -> None:
    async with flood() as clients:
        await clients.send(ApiKey.DELETE_TOPICS)
        clients.connections[-1].close("the peer closed")
        await clients.end_all()
        assert [connection for connection, _ in clients.served] == clients.connections[:-1]


async def test_large_requests_that_wait_hold_only_a_part_of_the_memory_for_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "WAITING_REQUESTS_BYTES_MAX", 3 * (LARGE_REQUEST_BYTES + 1))
    async with flood() as clients:
        await clients.send(ApiKey.DELETE_TOPICS)
        taken = LARGE_REQUESTS_AT_ONCE + 3
        assert [each.is_closed for each in clients.connections] == [False] * taken + [True] * (FLOOD - taken)
        assert "too many large requests wait" in clients.connections[-1].closed_reason
        await clients.end_all()
        assert [connection for connection, _ in clients.served] == clients.connections[:taken]
        clients.connect()
        clients.clients[-1].sendall(request_frame(ApiKey.DELETE_TOPICS, 1, 5, "later", bytes(LARGE_REQUEST_BYTES + 1)))
        await clients.turn()
        assert clients.in_service == clients.connections[-1:]

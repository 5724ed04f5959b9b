"""Large requests that are served in steps wait for one another: else all of a flood are in memory at the same time.

Each API has its own queue, since some requests wait long for what is not the loop's: followers, creations before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ottla.broker.net.connection import Connection
from ottla.broker.net.limits import LARGE_REQUEST_BYTES, LARGE_REQUESTS_AT_ONCE, WAITING_REQUESTS_BYTES_MAX
from ottla.model.errors import WireError

T = TypeVar("T")


class Turn:
    """A request's place among those that are served; one that takes little memory has none."""

    __slots__ = ("_places",)

    def __init__(self, places: asyncio.Semaphore | None) -> None:
        self._places = places

    async def leave_for(self, waiting: Awaitable[T]) -> T:
        """Give the place to others until this has come."""
        if self._places is None:
            return await waiting
        self._places.release()
        try:
            return await waiting
        finally:
            await self._places.acquire()


class LargeRequests:
    """Their bytes stay in their connections' buffers while they wait."""

    __slots__ = ("_places", "_waiting_bytes")

    def __init__(self) -> None:
        self._places: dict[int, asyncio.Semaphore] = {}
        self._waiting_bytes = 0

    @asynccontextmanager
    async def turn(self, api_key: int, size_bytes: int) -> AsyncIterator[Turn]:
        """Comes when fewer than so many of this API are served.

        Raises `WireError` when those that wait hold too many bytes already.
        """
        if size_bytes <= LARGE_REQUEST_BYTES:
            yield Turn(None)
            return
        places = self._places.get(api_key)
        if places is None:
            places = self._places[api_key] = asyncio.Semaphore(LARGE_REQUESTS_AT_ONCE)
        await self._acquire(places, size_bytes)
        try:
            yield Turn(places)
        finally:
            places.release()

    async def in_turn(
        self, api_key: int, size_bytes: int, connection: Connection, serve: Callable[[], Awaitable[None]]
    ) -> None:
        """Call `serve` in turn, unless the connection is closed by then."""
        async with self.turn(api_key, size_bytes):
            if connection.is_closed:
                return
            serving = serve()
            # With it goes the request's bytes, when they have been read.
            del serve
            await serving

    async def _acquire(self, places: asyncio.Semaphore, size_bytes: int) -> None:
        if not places.locked():
            await places.acquire()
            return
        if self._waiting_bytes + size_bytes > WAITING_REQUESTS_BYTES_MAX:
            raise WireError("too many large requests wait to be served: send it again later")
        self._waiting_bytes += size_bytes
        try:
            await places.acquire()
        finally:
            self._waiting_bytes -= size_bytes

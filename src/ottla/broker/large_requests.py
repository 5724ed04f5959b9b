"""Large requests that are served in steps wait for one another: else all of a flood are in memory at the same time.

Each API has its own queue, since some requests wait long for what is not the loop's: followers, creations before them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.connection import Connection
from ottla.broker.limits import LARGE_REQUESTS_AT_ONCE, WAITING_REQUESTS_BYTES_MAX
from ottla.model.errors import WireError


class LargeRequests:
    """Their bytes stay in their connections' buffers while they wait."""

    __slots__ = ("_turns", "_waiting_bytes")

    def __init__(self) -> None:
        self._turns: dict[int, asyncio.Semaphore] = {}
        self._waiting_bytes = 0

    async def in_turn(
        self, api_key: int, size_bytes: int, connection: Connection, serve: Callable[[], Awaitable[None]]
    ) -> None:
        """Call `serve` when fewer than so many of this API are served, unless the connection is closed by then.

        Raises `WireError` when those that wait hold too many bytes already.
        """
        turn = self._turns.get(api_key)
        if turn is None:
            turn = self._turns[api_key] = asyncio.Semaphore(LARGE_REQUESTS_AT_ONCE)
        await self._acquire(turn, size_bytes)
        try:
            if connection.is_closed:
                return
            serving = serve()
            # With it goes the request's bytes, when they have been read.
            del serve
            await serving
        finally:
            turn.release()

    async def _acquire(self, turn: asyncio.Semaphore, size_bytes: int) -> None:
        if not turn.locked():
            await turn.acquire()
            return
        if self._waiting_bytes + size_bytes > WAITING_REQUESTS_BYTES_MAX:
            raise WireError("too many large requests wait to be served: send it again later")
        self._waiting_bytes += size_bytes
        try:
            await turn.acquire()
        finally:
            self._waiting_bytes -= size_bytes

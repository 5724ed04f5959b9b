"""The end of the next flush, for tasks that wait until logs are stable: one event, however many logs it covers."""

from __future__ import annotations

import asyncio


class FlushSignal:
    """A task takes `wait` while its logs are not stable, and looks again at them when that is done."""

    __slots__ = ("_loop", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[OSError | None]] = []

    def wait(self) -> asyncio.Future[OSError | None]:
        """Done after the next flush that ends, with its error; the task may end it earlier by setting a result."""
        waiter: asyncio.Future[OSError | None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def on_flushed(self, error: OSError | None) -> None:
        """A flush has ended, and the logs know it."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(error)

"""Calls from other threads on an event loop, many at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class LoopCalls:
    """`put` from any thread: `call` runs on the loop.  The loop is woken once for all that come until it runs them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._run)

    def future(self) -> tuple[asyncio.Future[None], Callable[[], None]]:
        """A future of the loop, and what ends it from any thread."""
        future: asyncio.Future[None] = self.loop.create_future()

        def end() -> None:
            if not future.done():  # it may have been cancelled
                future.set_result(None)

        return future, lambda: self.put(end)

    def _run(self) -> None:
        # First: what is put from now on, and is not seen below, wakes the loop again.
        self._is_scheduled = False
        while self._calls:
            self._calls.popleft()()

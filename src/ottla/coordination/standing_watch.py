"""A watch that stands for as long as there is a reader: set by its next read whenever it has been called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.coordination.tree import Watch

Read = TypeVar("Read")


class StandingWatch:
    """`on_call` is called on the event loop when the reader should read again; at most once for each read."""

    def __init__(self, on_call: Callable[[], None] | None) -> None:
        self._on_call = on_call
        # While it is, a reader who knows what it has read need not read again.
        self.is_set = False

    async def read(self, read: Callable[[Watch | None], Awaitable[Read]]) -> Read:
        """Read with the watch where it is not set.  It is set before the read is answered, so no change is missed."""
        if self.is_set or self._on_call is None:
            return await read(None)
        self.is_set = True
        try:
            return await read(self._call)
        except BaseException:
            self.is_set = False
            raise

    def _call(self) -> None:
        self.is_set = False
        if self._on_call is not None:
            self._on_call()

"""Memory of large answers that their peers have not received yet, over all connections.

An answer that finds no room in the budget waits, in order, with the bytes that were made for it.  Few can wait: the
request of one more is refused.  While one waits, the sweep closes peers that do not take theirs (`listener`), so
waiting ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from ottla.broker.net.limits import UNSENT_ANSWERS_BYTES_MAX, WAITING_ANSWERS_BYTES_MAX
from ottla.model.errors import WireError


class ResponseBudget:
    """A count of bytes."""

    def __init__(
        self, limit_bytes: int = UNSENT_ANSWERS_BYTES_MAX, waiting_bytes_max: int = WAITING_ANSWERS_BYTES_MAX
    ) -> None:
        self._limit_bytes: Final = limit_bytes
        self._waiting_bytes_max: Final = waiting_bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting_bytes = 0
        self._taken_bytes = 0
        self._answers_count = 0

    @property
    def taken_bytes(self) -> int:
        return self._taken_bytes

    @property
    def is_contended(self) -> bool:
        """Whether an answer waits for room."""
        return bool(self._waiting)

    async def counted(self, body: bytes | bytearray) -> CountedAnswer:
        """The body, counted from the time when there is room for it.  Raises `WireError` when too many wait."""
        size_bytes = len(body)
        if self._waiting or not self._has_room(size_bytes):
            if self._waiting and self._waiting_bytes + size_bytes > self._waiting_bytes_max:
                raise WireError("there is no memory for its answer: other clients do not take theirs")
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((size_bytes, future))
            self._waiting_bytes += size_bytes
            await future
        else:
            self._taken_bytes += size_bytes
        self._answers_count += 1
        return CountedAnswer(self, body, self._answers_count)

    def release(self, size_bytes: int) -> None:
        """The peer has an answer, or has gone."""
        self._taken_bytes -= size_bytes
        while self._waiting and self._has_room(self._waiting[0][0]):
            next_bytes, future = self._waiting.popleft()
            self._waiting_bytes -= next_bytes
            if not future.done():  # else it was cancelled
                self._taken_bytes += next_bytes
                future.set_result(None)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._taken_bytes or self._taken_bytes + size_bytes <= self._limit_bytes


class CountedAnswer:
    """The bytes of an answer that are not sent yet.  The budget counts all of them until this object is gone."""

    __slots__ = ("_budget", "_size_bytes", "number", "view")

    def __init__(self, budget: ResponseBudget, body: bytes | bytearray, number: int) -> None:
        self._budget = budget
        self._size_bytes = len(body)
        # Each has its own.
        self.number = number
        self.view = memoryview(body)

    def __len__(self) -> int:
        return len(self.view)

    def __del__(self) -> None:
        # Wherever it went: sent, or dropped with its connection.
        self._budget.release(self._size_bytes)

    @property
    def sent_bytes(self) -> int:
        return self._size_bytes - len(self.view)

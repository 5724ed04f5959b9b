"""Replies that wait for the log, in the order in which they were decided."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final


class HeldReplies:
    """A queue whose ends never fall, since ends of appends do not; so one comparison tells what may leave."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: Final[deque[tuple[int, Callable[[Any], None], object]]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def hold(self, end: int, reply: Callable[[Any], None], value: object) -> None:
        """Keep `value` until the log is stable below `end` (exclusive)."""
        assert not self._queue or self._queue[-1][0] <= end
        self._queue.append((end, reply, value))

    def release(self, stable_end: int) -> None:
        queue = self._queue
        while queue and queue[0][0] <= stable_end:
            _, reply, value = queue.popleft()
            reply(value)

    def fail(self, refused: Callable[[object], object]) -> None:
        """Answer all of them with `refused(value)` instead."""
        while self._queue:
            _, reply, value = self._queue.popleft()
            reply(refused(value))

"""Replies that wait until the log is stable up to what they reveal (decision 9)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final


class HeldReplies:
    """A queue with rising ends, since ends of appends rise; so one comparison finds the replies that may leave."""

    __slots__ = ("_is_releasing", "_queue", "_stable_end")

    def __init__(self) -> None:
        self._queue: Final[deque[tuple[int, Callable[[Any], None], object]]] = deque()
        self._stable_end = 0
        self._is_releasing = False

    def __len__(self) -> int:
        return len(self._queue)

    def hold(self, end: int, reply: Callable[[Any], None], value: object) -> None:
        """Keep `value` until the log is stable below `end` (exclusive)."""
        assert not self._queue or self._queue[-1][0] <= end
        self._queue.append((end, reply, value))

    def release(self, stable_end: int) -> None:
        """Call the replies that may leave.  A reply may call this again: then the outer call continues, without
        recursion, however many replies submit their next command."""
        self._stable_end = max(self._stable_end, stable_end)
        if self._is_releasing:
            return
        self._is_releasing = True
        queue = self._queue
        try:
            while queue and queue[0][0] <= self._stable_end:
                _, reply, value = queue.popleft()
                reply(value)
        finally:
            self._is_releasing = False

    def fail(self, refused: Callable[[object], object]) -> None:
        """Answer all of them with `refused(value)` instead."""
        while self._queue:
            _, reply, value = self._queue.popleft()
            reply(refused(value))

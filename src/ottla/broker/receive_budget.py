"""Memory for requests that are larger than a connection's first buffer, shared by all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ReceiveBudget:
    """A count of bytes.  Who finds no room is called back, in order, when some is given back.

    A peer that holds room and sends nothing is closed by the sweep for stalled peers, so waiting ends.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def taken_bytes(self) -> int:
        return self._taken_bytes

    @property
    def is_contended(self) -> bool:
        """Whether somebody waits for room: who holds some without need gives it back."""
        return bool(self._waiting)

    def take(self, size_bytes: int, when_room: Callable[[], None]) -> bool:
        """Take `size_bytes`; without room, False, and `when_room` is called once later to try again."""
        assert size_bytes >= 0
        # The first to ask is always served, however large: a limit below one request would stop the broker.
        if self._taken_bytes and self._taken_bytes + size_bytes > self._limit_bytes:
            self._waiting.append(when_room)
            return False
        self._taken_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self._taken_bytes -= size_bytes
        assert self._taken_bytes >= 0
        if size_bytes and self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for when_room in waiting:
                when_room()

"""Memory for requests that are larger than a connection's first buffer, shared by all connections."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.net.limits import RECEIVE_BUDGET_OF_SMALL


class ReceiveBudget:
    """A count of bytes.  A connection that finds no room is called back, in order, when some is released.

    Large requests leave a part of it to small ones, which so do not wait for them.  A peer that holds room and sends
    too slowly is closed by the sweep, so waiting ends.  Holders that all wait for each other would deadlock: the one
    that would be the last to wait gets its bytes, beyond the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_of_large_bytes = limit_bytes - limit_bytes // RECEIVE_BUDGET_OF_SMALL
        self._taken_bytes = 0
        # Waiting connections, in order, and the bytes that each holds meanwhile.
        self._waiting: dict[Callable[[], None], int] = {}
        self._held_by_waiting_bytes = 0

    @property
    def taken_bytes(self) -> int:
        return self._taken_bytes

    @property
    def is_contended(self) -> bool:
        """Whether a connection waits for room: idle connections should release theirs."""
        return bool(self._waiting)

    def take(
        self, size_bytes: int, when_room: Callable[[], None], *, held_bytes: int = 0, is_small: bool = False
    ) -> bool:
        """Acquire `size_bytes`; without room, False, and `when_room` is called once later to try again.

        `held_bytes` is what the caller has already and keeps while it waits; `is_small`: for a small request.
        """
        assert size_bytes >= 0
        # When no other connection will release any, the request is served, however large: else all would wait for ever.
        others_bytes = self._taken_bytes - self._held_by_waiting_bytes - held_bytes
        limit_bytes = self._limit_bytes if is_small else self._limit_of_large_bytes
        if others_bytes > 0 and self._taken_bytes + size_bytes > limit_bytes:
            self._waiting[when_room] = held_bytes
            self._held_by_waiting_bytes += held_bytes
            return False
        self._taken_bytes += size_bytes
        return True

    def forget(self, when_room: Callable[[], None]) -> None:
        """Remove a waiting connection."""
        self._held_by_waiting_bytes -= self._waiting.pop(when_room, 0)

    def release(self, size_bytes: int) -> None:
        self._taken_bytes -= size_bytes
        assert self._taken_bytes >= 0
        if size_bytes and self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._held_by_waiting_bytes = 0
            for when_room in waiting:
                when_room()

"""Produces that wait until a partition's end has passed their batches.

They are kept in append order, so that a move of the end releases them with one comparison each: no task, future or
timer for any of them.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class WaitingProduce(Protocol):
    """A produce request that waits for some of its batches.  Each batch has a slot, released or failed once."""

    def release(self, slot: int) -> None:
        """The batch of this slot may be acknowledged."""
        ...

    def fail(self, slot: int, error_code: int) -> None:
        """The batch of this slot will not be acknowledged by this broker."""
        ...

    def is_expired(self, now_ms: int) -> bool:
        """Whether the request still waits and its time-out has passed, by the monotonic clock."""
        ...

    def expire(self) -> None:
        """Answer now: the time-out has passed."""
        ...


class ParkedProduces(deque[tuple[int, WaitingProduce, int]]):
    """A queue of (required end, produce, slot), in append order.

    A duplicate's required end is not above its predecessors': it is released with them, at most one flush later than
    it could be.
    """

    __slots__ = ()

    def release(self, end_offset: int) -> None:
        """Release the produces whose required end is `end_offset` or less."""
        while self and self[0][0] <= end_offset:
            _, produce, slot = self.popleft()
            produce.release(slot)

    def fail_above(self, end_offset: int, error_code: int) -> None:
        """Fail the produces whose required end is above `end_offset`, and keep the others."""
        parked = list(self)
        self.clear()
        self.extend(each for each in parked if each[0] <= end_offset)
        for required_end, produce, slot in parked:
            if required_end > end_offset:
                produce.fail(slot, error_code)

    def fail_all(self, error_code: int) -> None:
        """Fail every produce."""
        self.fail_above(-1, error_code)

    def expire(self, now_ms: int) -> None:
        """Answer the requests whose time-out has passed; their slots stay queued, and their release does nothing."""
        for _, produce, _ in list(self):
            if produce.is_expired(now_ms):
                produce.expire()

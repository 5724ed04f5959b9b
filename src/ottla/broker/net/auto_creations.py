"""How many topics one connection's metadata requests may create.  Pure: time is passed in."""

from __future__ import annotations

from typing import Final

from ottla.model.limits import MINUTE_MS

UNBOUNDED: Final = -1


class AutoCreations:
    """A minute's share at once, and from then on as fast as it comes back."""

    __slots__ = ("_left", "_seen_ms")

    def __init__(self) -> None:
        self._left: float | None = None
        self._seen_ms = 0

    def take(self, now_ms: int, per_minute: int) -> bool:
        """Whether one more topic may be created; counts it."""
        if per_minute == UNBOUNDED:
            return True
        left = float(per_minute)
        if self._left is not None:
            left = min(left, self._left + max(now_ms - self._seen_ms, 0) * per_minute / MINUTE_MS)
        self._seen_ms = now_ms
        may_create = left >= 1
        self._left = left - 1 if may_create else left
        return may_create

"""Virtual time: a queue of events in an order that the seed determines."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Timeline:
    """A heap of calls.  `now` is in ms and moves only from one call to the next."""

    __slots__ = ("_count", "_heap", "events_count", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.events_count = 0
        self._count = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heappush(self._heap, (self.now + delay_ms, self._count, call, arguments))

    def run_until(self, end_ms: float, is_over: Callable[[], bool] | None = None) -> bool:
        """Run all calls up to a time, or until `is_over`, which is checked every hundred calls; whether it was."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
            self.events_count += 1
            if is_over is not None and self.events_count % 100 == 0 and is_over():
                return True
        self.now = max(self.now, end_ms)
        return is_over is not None and is_over()

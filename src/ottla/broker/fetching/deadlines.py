"""Fetches that wait for records, and their deadlines: one heap and one timer for all of them."""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol

from ottla.broker.net.limits import PARKED_FETCHES_MAX


class Expiring(Protocol):
    """Something that ends at its deadline unless it ended before."""

    @property
    def is_over(self) -> bool: ...

    def on_expired(self) -> None: ...


class FetchDeadlines:
    """Calls `on_expired` of each entry that has not ended by its deadline.

    Entries that ended early stay in the heap until their deadline (a fetch waits 500 ms, so few accumulate) and are
    dropped early when they are the majority.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Expiring]] = []
        self._sequence = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = float("inf")
        self._prune_at = 1_024

    @property
    def waiting_count(self) -> int:
        """Entries held, including those that have ended."""
        return len(self._heap)

    @property
    def has_room(self) -> bool:
        return len(self._heap) < PARKED_FETCHES_MAX

    def add(self, waiting: Expiring, delay_ms: int) -> None:
        due_s = self._loop.time() + delay_ms / 1000
        self._sequence += 1
        heapq.heappush(self._heap, (due_s, self._sequence, waiting))
        if len(self._heap) > self._prune_at:
            self._prune()
        if due_s < self._timer_due_s:
            self._arm(due_s)

    def expire_all(self) -> None:
        """Expire every entry now: the broker stops."""
        heap, self._heap = self._heap, []
        for _, _, waiting in sorted(heap):
            if not waiting.is_over:
                waiting.on_expired()

    def cancel(self) -> None:
        """Stop the timer; nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()

    def _arm(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_at(due_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_due_s = float("inf")
        # The loop's timers have a resolution: what is due within it is due now.
        now_s = self._loop.time() + 0.001
        heap = self._heap
        try:
            while heap and (heap[0][0] <= now_s or heap[0][2].is_over):
                _, _, waiting = heapq.heappop(heap)
                if not waiting.is_over:
                    waiting.on_expired()
        finally:
            # Even if one of them fails, the others must not wait for ever.
            if heap:
                self._arm(heap[0][0])

    def _prune(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].is_over]
        heapq.heapify(self._heap)
        self._prune_at = max(1_024, 2 * len(self._heap))

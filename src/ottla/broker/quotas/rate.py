"""How fast a client uses something, and how long it must pause.  Times are in milliseconds of a monotonic clock."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple


class Window(NamedTuple):
    """The time over which a rate is measured: so many samples of one length."""

    samples_count: int
    sample_ms: int

    @property
    def length_ms(self) -> int:
        return self.samples_count * self.sample_ms

    @property
    def full_ms(self) -> int:
        """The samples that are complete while the last one is filled."""
        return max(self.samples_count - 1, 1) * self.sample_ms


class WindowedRate:
    """Amounts per second over a window, as Apache Kafka's `Rate` computes them.

    The time by which the sum is divided reaches from the oldest sample to now, and is at least as long as all complete
    samples: the first amounts of a client are not taken for a high rate.
    """

    __slots__ = ("_samples", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window: Final = window
        # When each started, and its sum.
        self._samples: deque[list[float]] = deque()
        self.last_ms = now_ms

    def record(self, amount: float, now_ms: int) -> None:
        """A negative amount takes one back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window.sample_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        self._drop_old(now_ms)
        return sum(amount for _, amount in self._samples) * 1_000 / self._measured_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long no more may come until the rate is the limit; 0 when it is not above it."""
        rate = self.per_second(now_ms)
        return round((rate - limit) / limit * self._measured_ms(now_ms)) if rate > limit else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as a new one."""
        return now_ms - self.last_ms >= self._window.length_ms

    def _measured_ms(self, now_ms: int) -> float:
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._window.full_ms - elapsed_ms // self._window.sample_ms * self._window.sample_ms
        return elapsed_ms + max(missing, 0)

    def _drop_old(self, now_ms: int) -> None:
        samples, oldest_ms = self._samples, now_ms - self._window.length_ms
        while samples and samples[0][0] <= oldest_ms:
            samples.popleft()


class TokenBucket:
    """Bursts up to what the limit allows in a whole window, then the limit (KIP-599)."""

    __slots__ = ("_limit", "_tokens", "_window", "last_ms")

    def __init__(self, window: Window, now_ms: int) -> None:
        self._window: Final = window
        # None: full.
        self._tokens: float | None = None
        self._limit = 0.0
        self.last_ms = now_ms

    def record(self, amount: float, limit: float, now_ms: int) -> None:
        self._tokens = self._tokens_at(limit, now_ms) - amount
        self._limit, self.last_ms = limit, now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until no token is lacking; 0 when none is."""
        tokens = self._tokens_at(limit, now_ms)
        return round(-tokens / limit * 1_000) if tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as a new one."""
        return self._tokens is None or self._tokens_at(self._limit, now_ms) >= self._full(self._limit)

    def _tokens_at(self, limit: float, now_ms: int) -> float:
        full = self._full(limit)
        if self._tokens is None:
            return full
        return min(self._tokens + limit * (now_ms - self.last_ms) / 1_000, full)

    def _full(self, limit: float) -> float:
        return limit * self._window.length_ms / 1_000

"""Time-outs and retries: deadlines, growing pauses, keys that are retried later.

`Retrying` retries until an attempt succeeds, one fails permanently, or the time is over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.client.wire.errors import CallTimedOut, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.model.errors import OttlaError
from ottla.runtime.clock import Clock


class Deadline:
    """A moment of the monotonic clock."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._at_ms = clock.monotonic_ms() + timeout_ms

    @property
    def remaining_ms(self) -> float:
        """Never negative."""
        return max(0.0, self._at_ms - self._clock.monotonic_ms())

    @property
    def has_passed(self) -> bool:
        return self._clock.monotonic_ms() >= self._at_ms

    def at_most(self, timeout_ms: float) -> Deadline:
        """The earlier of this moment and `timeout_ms` from now."""
        return Deadline(self._clock, min(self.remaining_ms, timeout_ms))


class Backoff:
    """Exponential pauses up to a limit, with 20 % of jitter, so that clients do not retry in step."""

    def __init__(
        self, first_ms: float, limit_ms: float, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first_ms = first_ms
        self._limit_ms = limit_ms
        self._uniform = uniform
        self._failures_count = 0

    def next_ms(self) -> float:
        pause_ms = min(self._limit_ms, self._first_ms * 2.0 ** min(self._failures_count, 30))
        self._failures_count += 1
        return pause_ms * self._uniform(0.8, 1.2)


T = TypeVar("T")


class Retrying:
    """The options' times, with this clock and sleep function (seconds).

    `on_wait` receives the reason of each retry, to show a user what a call waits for; `on_give_up` that of each attempt
    after which no time is left for another one.
    """

    def __init__(
        self,
        options: ClientOptions,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: Callable[[OttlaError], None] = lambda reason: None,
        on_give_up: Callable[[OttlaError], None] = lambda reason: None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._on_give_up = on_give_up
        self.on_wait = on_wait

    def deadline(self, timeout_ms: float | None = None) -> Deadline:
        """`call_timeout_ms` from now unless the caller gives another time."""
        return Deadline(self._clock, self._options.call_timeout_ms if timeout_ms is None else timeout_ms)

    def backoff(self) -> Backoff:
        return Backoff(self._options.retry_backoff_ms, self._options.retry_backoff_max_ms)

    def run(self, what: str, attempt: Callable[[Deadline], T], deadline: Deadline) -> T:
        backoff = self.backoff()
        while True:
            try:
                return attempt(deadline)
            except ClientError as error:
                if not error.is_retriable:
                    raise
                self.pause_or_give_up(what, backoff, deadline, error)

    def pause_or_give_up(self, what: str, backoff: Backoff, deadline: Deadline, reason: ClientError) -> None:
        """Wait before the next attempt; CallTimedOut when no time is left for one."""
        pause_ms = backoff.next_ms()
        if deadline.remaining_ms <= pause_ms:
            self._on_give_up(reason)
            raise CallTimedOut(f"{what} did not succeed in time: {reason}", hint=reason.hint) from reason
        self.on_wait(reason)
        self.sleep_ms(pause_ms)

    def sleep_ms(self, pause_ms: float) -> None:
        self._sleep(pause_ms / 1000)


Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Trouble:
    backoff: Backoff
    give_up: Deadline
    try_again: Deadline


class Postponed(Generic[Key]):
    """Pauses grow with each failure of a key, until it is cleared."""

    def __init__(self, retrying: Retrying) -> None:
        self._retrying = retrying
        self._troubles: dict[Key, _Trouble] = {}

    def postpone(self, key: Key) -> None:
        known = self._troubles.get(key)
        backoff = known.backoff if known else self._retrying.backoff()
        give_up = known.give_up if known else self._retrying.deadline()
        self._troubles[key] = _Trouble(backoff, give_up, self._retrying.deadline(backoff.next_ms()))

    def clear(self, key: Key) -> None:
        self._troubles.pop(key, None)

    def may_try(self, key: Key) -> bool:
        trouble = self._troubles.get(key)
        return trouble is None or trouble.try_again.has_passed

    def is_hopeless(self, key: Key) -> bool:
        """Whether it has been failing for `call_timeout_ms`."""
        trouble = self._troubles.get(key)
        return trouble is not None and trouble.give_up.has_passed

    def next_try_ms(self, limit_ms: float) -> float:
        """The time until a postponed key may be retried; at most `limit_ms`."""
        waiting = [trouble.try_again.remaining_ms for trouble in self._troubles.values()]
        return min([limit_ms, *(remaining_ms for remaining_ms in waiting if remaining_ms > 0)])

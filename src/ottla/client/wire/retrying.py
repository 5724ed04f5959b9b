"""Retries until an attempt succeeds, one fails permanently, or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ottla.client.wire.deadline import Backoff, Deadline
from ottla.client.wire.errors import CallTimedOut, ClientError
from ottla.client.wire.options import ClientOptions
from ottla.model.errors import OttlaError
from ottla.runtime.clock import Clock

T = TypeVar("T")


class Retrying:
    """The options' times, with this clock and sleep function (seconds).

    `on_wait` receives the reason of each retry, to show a user what a call waits for.
    """

    def __init__(
        self,
        options: ClientOptions,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: Callable[[OttlaError], None] = lambda reason: None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
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
        self.on_wait(reason)
        pause_ms = backoff.next_ms()
        if deadline.remaining_ms <= pause_ms:
            raise CallTimedOut(f"{what} did not succeed in time: {reason}", hint=reason.hint) from reason
        self.sleep_ms(pause_ms)

    def sleep_ms(self, pause_ms: float) -> None:
        self._sleep(pause_ms / 1000)

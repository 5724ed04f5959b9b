"""Work on the tree that is repeated when the connection breaks under it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.coordination.tree import ConnectionLoss, SessionLost
from ottla.runtime.clock import Clock

T = TypeVar("T")

ATTEMPT_INTERVAL_S: Final = 0.1


class TreeRetries:
    """Retries for a broker's start: a broken connection or an ended session does not fail it.

    Each piece of work has `patience_ms` from its first failure on; None: as long as it takes.
    """

    def __init__(self, clock: Clock, patience_ms: int | None, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._patience_ms = patience_ms
        self._sleep = sleep

    async def until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, which must be such that doing it twice does no harm: its last outcome may be unknown.

        Raises what `work` raised last, `ConnectionLoss` or `SessionLost`, when the time is over; any other error at
        once.
        """
        give_up_ms = None
        while True:
            try:
                return await work()
            except (ConnectionLoss, SessionLost):
                now_ms = self._clock.monotonic_ms()
                if give_up_ms is None and self._patience_ms is not None:
                    give_up_ms = now_ms + self._patience_ms
                if give_up_ms is not None and now_ms >= give_up_ms:
                    raise
            await self._sleep(ATTEMPT_INTERVAL_S)

"""Watches the lease on this broker's session, so that its end is acted on at once and not at the next request.

Requests wait at a leader: fetches for records, produces for a flush, members for their group.  A leader whose lease is
over must release them, since the next leader has what they wait for and this one never will.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.coordination.tree import Lease
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import Timers

log = logging.getLogger(__name__)

# How often a lease that is over is compared again: it may be extended in the same session.
RENEWAL_CHECK_MS: Final = 50
# A lease that never ends, and one of a machine that was suspended: its timers stood still.
CHECK_INTERVAL_MS_MAX: Final = 10_000


class LeaseWatch:
    """Keeps `BrokerLifecycle.is_suspended` up to date by a timer; `on_change` is called after each change of it.

    A process that was paused serves requests before its timers: reads and flushes call `check` first.
    """

    __slots__ = ("_clock", "_lease", "_lifecycle", "_on_change", "_timer", "_timers")

    def __init__(
        self, lifecycle: BrokerLifecycle, lease: Lease, clock: Clock, timers: Timers, on_change: Callable[[], None]
    ) -> None:
        self._lifecycle = lifecycle
        self._lease = lease
        self._clock = clock
        self._timers = timers
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._on_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Compare the lease with the clock now."""
        # In every read: one comparison, as long as the lease holds.
        if (self._clock.boottime_ms() >= self._lease.until_ms) is not self._lifecycle.is_suspended:
            self._change()

    def _change(self) -> None:
        lifecycle = self._lifecycle
        lifecycle.is_suspended = is_suspended = not lifecycle.is_suspended
        if is_suspended:
            log.warning("lease.ended", extra=fields(broker_epoch=lifecycle.broker_epoch))
        else:
            log.info("lease.extended", extra=fields(broker_epoch=lifecycle.broker_epoch))
        self._on_change()

    def _on_timer(self) -> None:
        try:
            self.check()
        finally:
            # Even if the change fails for one partition, the next one must not be missed.
            left_ms = self._lease.until_ms - self._clock.boottime_ms()
            if self._lifecycle.is_suspended:
                left_ms = RENEWAL_CHECK_MS
            delay_ms = max(1, min(left_ms, CHECK_INTERVAL_MS_MAX))
            self._timer = self._timers.call_later(delay_ms / 1000, self._on_timer)

"""The thread that syncs files, and how it exchanges work with the event loop.

One plan is in progress at a time (group commit): the next one covers what is appended meanwhile.  The scheduler
(storage/log/flush.py) decides what and when; this shell executes and reports back.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import queue
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Final

from ottla.observe.events import fields
from ottla.observe.metrics import Histogram
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk
from ottla.storage.log.flush import STUCK_FLUSH_MS, FlushPlan, FlushScheduler

log = logging.getLogger(__name__)

# A flush that is late without being stuck is looked at again after this time.
_LOOK_AGAIN_MS: Final = 1_000


class Flusher:
    """Drives a `FlushScheduler`: `on_flushed` is called on the loop after each flush."""

    def __init__(
        self,
        scheduler: FlushScheduler,
        disk: Disk,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        on_flushed: Callable[[OSError | None], None],
        before_announced: Callable[[], None] | None = None,
        on_stuck_changed: Callable[[], None] | None = None,
    ) -> None:
        """`before_announced` is called after a flush, before any caller is notified that records are stable.

        `on_stuck_changed` is called when the scheduler's `is_stuck` has changed.
        """
        self._scheduler = scheduler
        self._disk = disk
        self._clock = clock
        self._loop = loop
        self._on_flushed = on_flushed
        self._before_announced = before_announced
        self._on_stuck_changed = on_stuck_changed
        # How long the disk took for each flush, in milliseconds.
        self.times: Final = Histogram()
        self._plans: queue.SimpleQueue[FlushPlan | None] = queue.SimpleQueue()
        self._is_poked = False
        self._is_busy = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        # When the flush in progress was planned, and the one that was found to be stuck, by the monotonic clock.
        self._busy_since_ms = 0
        self._stuck_since_ms = 0
        # Looks whether a flush is stuck.  One timer for all flushes, which may be thousands in a second.
        self._watch: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self) -> None:
        """Flush what is due, and from now on what the scheduler marks."""
        self._thread.start()
        self._scheduler.watch(self._poke)
        self._poke()

    @property
    def is_busy(self) -> bool:
        """Whether a flush is in progress, so that requests wait for the thread."""
        return self._is_busy

    @property
    def is_stuck(self) -> bool:
        """Whether a flush is stuck, or was, and no sync has been fast since."""
        return self._scheduler.is_stuck

    async def stop(self) -> None:
        """Wait for the flush in progress and end the thread."""
        # A flush that ends may start the next one at once.
        while self._is_busy:
            await self._idle.wait()
        self._is_stopped = True
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()
        self._plans.put(None)
        self._thread.join()

    def _poke(self) -> None:
        """Something is due, or will be: look at the end of this turn, so that one flush covers all its appends."""
        if not self._is_poked and not self._is_busy:
            self._is_poked = True
            self._loop.call_soon(self._kick)

    def _kick(self) -> None:
        self._is_poked = False
        if self._is_busy or self._is_stopped:
            return
        now_ms = self._clock.monotonic_ms()
        plan = self._scheduler.plan(now_ms)
        if plan is not None:
            self._is_busy = True
            self._busy_since_ms = now_ms
            if self._watch is None:
                self._watch = self._loop.call_later(STUCK_FLUSH_MS / 1000, self._look_for_stuck)
            self._idle.clear()
            self._plans.put(plan)
            return
        due_ms = self._scheduler.next_due_ms(now_ms)
        if due_ms is not None:
            self._arm(due_ms, now_ms)

    def _arm(self, due_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            if self._timer_due_ms <= due_ms:
                return
            # Logs wait for different ages: the log that became dirty last may be due first.
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._loop.call_later(max(due_ms - now_ms, 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._poke()

    def _look_for_stuck(self) -> None:
        """The flush in progress may have started long after the timer."""
        self._watch = None
        if not self._is_busy or self._scheduler.is_stuck:
            return
        now_ms = self._clock.monotonic_ms()
        lasted_ms = now_ms - self._busy_since_ms
        if self._scheduler.becomes_stuck(now_ms):
            self._stuck_since_ms = self._busy_since_ms
            log.warning("flush.stuck", extra=fields(seconds=round(lasted_ms / 1000, 1)))
            if self._on_stuck_changed is not None:
                self._on_stuck_changed()
            return
        delay_ms = max(STUCK_FLUSH_MS - lasted_ms, _LOOK_AGAIN_MS)
        self._watch = self._loop.call_later(delay_ms / 1000, self._look_for_stuck)

    def _run(self) -> None:
        """The thread: it touches only the plan's files, never a log's state."""
        while (plan := self._plans.get()) is not None:
            error: OSError | None = None
            started_s = perf_counter()
            try:
                plan.execute(self._disk)
            except OSError as failure:
                error = failure
            except Exception as bug:
                # A thread that died would leave every produce waiting.  What was synced is not known: a failed flush.
                log.exception("flush.bug")
                error = OSError(errno.EIO, f"the flush ended by {bug!r}")
            plan.took_ms = (perf_counter() - started_s) * 1_000
            self._loop.call_soon_threadsafe(self._complete, plan, error)
            # It keeps the files open of logs that may be deleted before the next one comes.
            del plan

    def _complete(self, plan: FlushPlan, error: OSError | None) -> None:
        self.times.observe(plan.took_ms)
        self._is_busy = False
        self._idle.set()
        if error is not None:
            log.error("flush.failed", extra=fields(error=str(error)))
        if self._before_announced is not None:
            self._before_announced()
        was_stuck = self._scheduler.is_stuck
        now_ms = self._clock.monotonic_ms()
        self._scheduler.complete(plan, error, now_ms)
        # Start the next flush before the answers of this one are sent: the disk works while we send.
        self._kick()
        self._on_flushed(error)
        if was_stuck and not self._scheduler.is_stuck:
            log.warning("flush.recovered", extra=fields(seconds=round((now_ms - self._stuck_since_ms) / 1000, 1)))
            if self._on_stuck_changed is not None:
                self._on_stuck_changed()


class FlushSignal:
    """A task takes `wait` while its logs are not stable, and looks again at them when that is done."""

    __slots__ = ("_loop", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[OSError | None]] = []

    def wait(self) -> asyncio.Future[OSError | None]:
        """Done after the next flush that ends, with its error; the task may end it earlier by setting a result."""
        waiter: asyncio.Future[OSError | None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def on_flushed(self, error: OSError | None) -> None:
        """A flush has ended, and the logs know it."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(error)

"""One pass at a time over what changed in the tree, however many watches report changes meanwhile.

A pass that fails is repeated after a pause: the watch that caused it has fired, and does not fire again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ottla.model.errors import OttlaError
from ottla.observe.events import fields
from ottla.runtime.loop_offload import TimersAndTasks

log = logging.getLogger(__name__)

# After the first failure; doubled after each further one.
RETRY_AFTER_S_MIN: Final = 0.1
RETRY_AFTER_S_MAX: Final = 5.0


class TreeFollower:
    """Collects the reports of changes from its construction on, and applies them from `start` on."""

    def __init__(self, loop: TimersAndTasks) -> None:
        self._loop = loop
        self._is_stale = False
        # None before the start.
        self._apply: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._is_stopped = False
        self._failures_count = 0
        self._running: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, apply: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Passes may run from now on; one does at once if a change was reported before.

        `apply` reads what changed and acts on it; it is called again for changes that are reported while it runs.
        """
        self._apply = apply
        if self._is_stale:
            self.on_stale()

    def on_stale(self) -> None:
        """Something changed in the tree: a pass begins, or follows the one that runs."""
        self._is_stale = True
        if self._running is not None or self._apply is None or self._is_stopped:
            return
        self._cancel_timer()
        self._running = self._loop.create_task(self._run(self._apply), name="tree-follower")

    async def stop(self) -> None:
        """No further pass; returns when none runs."""
        self._is_stopped = True
        self._cancel_timer()
        if self._running is not None:
            await self._running

    async def _run(self, apply: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            while self._is_stale and not self._is_stopped:
                self._is_stale = False
                await apply()
                self._failures_count = 0
        except OttlaError as error:
            log.warning("tree.not_followed", extra=fields(error=str(error)))
            self._retry_later()
        except Exception:
            log.exception("tree.bug")
            self._retry_later()
        finally:
            self._running = None

    def _retry_later(self) -> None:
        self._is_stale = True
        if self._is_stopped:
            return
        delay_s = min(RETRY_AFTER_S_MIN * 2 ** min(self._failures_count, 10), RETRY_AFTER_S_MAX)
        self._failures_count += 1
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.on_stale()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

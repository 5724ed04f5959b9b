"""Looks at the room on the log directory's disk, on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.storage.directory.disk_space import LOOK_EVERY_MS_MAX
from ottla.storage.directory.log_directory import LogDirectory


class SpaceWatch:
    """One timer; how soon the next look follows depends on what the last one saw (storage/directory/disk_space.py).

    `on_long_full_changed` is called when the disk has been full for some seconds, and when it is no more.
    """

    def __init__(
        self, directory: LogDirectory, loop: asyncio.AbstractEventLoop, on_long_full_changed: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._loop = loop
        self._on_long_full_changed = on_long_full_changed
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        next_look_ms = LOOK_EVERY_MS_MAX
        space = self._directory.space
        was_long_full = space.is_long_full
        try:
            next_look_ms = self._directory.look_at_space()
            if space.is_long_full is not was_long_full:
                self._on_long_full_changed()
        finally:
            # After an error, too: only a look ends the refusal of records.
            self._timer = self._loop.call_later(next_look_ms / 1000, self._look)

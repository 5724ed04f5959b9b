"""Looks at the room on the log directory's disk, on the event loop."""

from __future__ import annotations

import asyncio

from ottla.storage.directory.log_directory import LogDirectory


class SpaceWatch:
    """One timer; how soon the next look follows depends on what the last one saw (storage/directory/disk_space.py)."""

    def __init__(self, directory: LogDirectory, loop: asyncio.AbstractEventLoop) -> None:
        self._directory = directory
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._directory.look_at_space() / 1000, self._look)

"""Periodic work, its syncs off the event loop: retention and checkpoints in slices, produces past their time-out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from ottla.broker.partitions.partition_table import PartitionTable
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload, next_turn
from ottla.runtime.mutex import Mutex
from ottla.storage.directory.disk_space import LOOK_EVERY_MS_MAX
from ottla.storage.directory.log_directory import LogDirectory

log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
# Apache Kafka's, too: who starts a broker and writes records of long ago can read them first.
FIRST_RETENTION_MS: Final = 30_000


class Housekeeping:
    """Runs the log directory's slices: the next one at once while there is work, else after a pause."""

    def __init__(
        self,
        directory: LogDirectory,
        partitions: PartitionTable,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        watermarks_interval_ms: int,
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._watermarks_interval_ms = watermarks_interval_ms
        self._watermarks_due_ms = clock.monotonic_ms() + watermarks_interval_ms
        self._task: asyncio.Task[None] | None = None
        # One slice at a time: a test's, when it has moved the clock, or the next one of the task.
        self._working = Mutex()

    def start(self) -> None:
        self._directory.postpone_retention(FIRST_RETENTION_MS)
        self._task = self._loop.create_task(self._run(), name="housekeeping")

    async def stop(self) -> None:
        """Record the high watermarks a last time."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._record_high_watermarks()

    async def run_all(self) -> None:
        """A whole pass of retention, and all else that is due now: one slice in each turn of the loop."""
        async with self._working:
            self._directory.begin_retention()
            goes_on = True
            while goes_on:
                goes_on = await self._directory.housekeep_in_steps(self._clock.now_ms(), LoopOffload())
                await next_turn()

    def expire_waits(self) -> None:
        """Answer produces whose time-out has passed, and consumers that have waited long enough for a new leader."""
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions:
            if partition.waiting.has_produces:
                partition.waiting.expire_produces(now_ms)
            if partition.withholds_reads:
                partition.end_withholding(now_ms)

    async def _record_high_watermarks(self) -> None:
        """Those of the partitions that have other replicas: alone, a replica's watermark is what it has."""
        self._watermarks_due_ms = self._clock.monotonic_ms() + self._watermarks_interval_ms
        found = {
            partition.topic_partition: partition.high_watermark
            for partition in self._partitions
            if partition.node is not None and len(partition.node.replicas) > 1
        }
        try:
            await self._directory.record_high_watermarks_in_steps(found, LoopOffload())
        except OSError as error:
            # They stay lower than the truth, which is harmless.
            log.warning("high_watermarks.not_recorded", extra=fields(error=str(error)))

    async def _run(self) -> None:
        goes_on = False
        while True:
            await (next_turn() if goes_on else asyncio.sleep(_PAUSE_S))
            try:
                async with self._working:
                    goes_on = await self._run_slice()
            except Exception:
                # Retention must not end for ever.
                goes_on = False
                log.exception("housekeeping.bug")

    async def _run_slice(self) -> bool:
        """Whether the next slice is due at once."""
        try:
            if self._clock.monotonic_ms() >= self._watermarks_due_ms:
                await self._record_high_watermarks()
            return await self._directory.housekeep_in_steps(self._clock.now_ms(), LoopOffload())
        except OSError as error:
            # A failure of retention must not stop the broker: it is retried, and the log stays as it is.
            log.error("housekeeping.failed", extra=fields(error=str(error)))
            return False


class SpaceWatch:
    """Looks at the room on the log directory's disk, on the event loop.

    One timer; how soon the next look follows depends on what the last one saw (storage/directory/disk_space.py).

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

"""Periodic work on the event loop: retention and checkpoints in slices, produces past their time-out."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.broker.partition_table import PartitionTable
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.storage.directory.log_directory import LogDirectory

log = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0


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
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(_PAUSE_S, self._run_slice)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._record_high_watermarks()

    async def run_all(self) -> None:
        """A whole pass of retention, and all else that is due now: one slice in each turn of the loop."""
        self._directory.begin_retention()
        goes_on = True
        while goes_on:
            goes_on = self._directory.housekeep(self._clock.now_ms())
            await asyncio.sleep(0)

    def expire_produces(self) -> None:
        """Answer produces whose time-out has passed."""
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions:
            if partition.has_waiting_produces:
                partition.expire_produces(now_ms)

    def _record_high_watermarks(self) -> None:
        """Those of the partitions that have other replicas: alone, a replica's watermark is what it has."""
        self._watermarks_due_ms = self._clock.monotonic_ms() + self._watermarks_interval_ms
        found = {
            partition.topic_partition: partition.high_watermark
            for partition in self._partitions
            if partition.node is not None and len(partition.node.replicas) > 1
        }
        try:
            self._directory.record_high_watermarks(found)
        except OSError as error:
            # They stay lower than the truth, which is harmless.
            log.warning("high_watermarks.not_recorded", extra=fields(error=str(error)))

    def _run_slice(self) -> None:
        goes_on = False
        try:
            if self._clock.monotonic_ms() >= self._watermarks_due_ms:
                self._record_high_watermarks()
            goes_on = self._directory.housekeep(self._clock.now_ms())
        except OSError as error:
            # A failure of retention must not stop the broker: it is retried, and the log stays as it is.
            log.error("housekeeping.failed", extra=fields(error=str(error)))
        finally:
            self._timer = self._loop.call_later(0 if goes_on else _PAUSE_S, self._run_slice)

"""Runs the cleans of compacted logs in a separate process (docs/decisions/0008), one at a time.

The event loop decides and swaps; the process only reads segments and writes files beside them, so its death at any
moment leaves the log as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.loop_offload import LoopOffload
from ottla.storage.compaction.plan import CleanFailure, CleanJob, CleanResult, result_from_json
from ottla.storage.directory.log_directory import LogDirectory

log = logging.getLogger(__name__)

WORKER: Final = ("-m", "ottla.storage.compaction.worker")
# A process that is idle for this long ends.
IDLE_S: Final = 60.0
_BACKOFF_MS_MIN: Final = 50
# How long a clean continues after the disk became full; a result may take minutes.
_ROOM_LOOK_S: Final = 0.25
# A result names the segments of a group: some tens of bytes each.
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024


class _DiskFilled(Exception):
    """A clean may write no more: what is left belongs to deletions, settings and commits."""


class Compaction:
    """Looks for work every `backoff_ms`, and at once after each clean."""

    def __init__(
        self, directory: LogDirectory, clock: Clock, backoff_ms: int, map_bytes: int, bytes_per_second: float
    ) -> None:
        """`map_bytes`: of a clean's map from keys to offsets; `bytes_per_second`: that a clean may read and write."""
        self._directory = directory
        self._compactor = directory.compactor
        self._clock = clock
        self._backoff_s = max(backoff_ms, _BACKOFF_MS_MIN) / 1000
        self._map_bytes = map_bytes
        self._bytes_per_second = bytes_per_second
        self._process: Process | None = None
        self._idle_since_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="compaction")

    async def stop(self) -> None:
        """End the clean in progress; its log stays as it is."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._end_process()
        self._compactor.give_up("the broker stops")

    async def _run(self) -> None:
        while True:
            may_write = self._directory.offline is None and not self._is_full
            job = await self._next_job() if may_write else None
            if job is None:
                await self._rest()
                continue
            try:
                await self._clean(job)
            except Exception as bug:
                # Cleans must continue for the other logs; after three failures this log is left alone.
                log.exception("compaction.bug")
                await self._fail(f"the clean ended by {bug!r}")
            if self._compactor.has_failed_last:
                await asyncio.sleep(self._backoff_s)

    async def _next_job(self) -> CleanJob | None:
        return await self._compactor.next_job_in_steps(self._clock.now_ms(), self._map_bytes, LoopOffload())

    @property
    def _is_full(self) -> bool:
        return self._directory.space.is_full

    async def _rest(self) -> None:
        if self._process is not None and self._clock.monotonic_ms() - self._idle_since_ms >= IDLE_S * 1000:
            await self._end_process()
        await asyncio.sleep(self._backoff_s)

    async def _clean(self, job: CleanJob) -> None:
        try:
            process = await self._running_process()
            assert process.stdin is not None
            process.stdin.write(job.to_json().encode() + b"\n")
            await process.stdin.drain()
            while await self._take(await self._next_result(process)):
                pass
        except _DiskFilled:
            await self._fail("the disk is full", lacks_room=True)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            await self._fail(f"the process that cleans is gone: {error}")
        if self._compactor.has_failed_last:
            # It may still be working on a clean that was cancelled.
            await self._end_process()
        self._idle_since_ms = self._clock.monotonic_ms()

    async def _take(self, result: CleanResult) -> bool:
        """Whether more results are to come.  The swap's syncs delay nothing but the next result."""
        return await self._compactor.apply_result(result, LoopOffload())

    async def _fail(self, reason: str, *, lacks_room: bool = False) -> None:
        # The process first: it may be about to write one more file.
        await self._end_process()
        if self._compactor.is_cleaning:
            await self._compactor.apply_result(CleanFailure(reason, is_damage=False, lacks_room=lacks_room))

    async def _next_result(self, process: Process) -> CleanResult:
        assert process.stdout is not None
        while not self._is_full:
            with contextlib.suppress(TimeoutError):
                line = await asyncio.wait_for(process.stdout.readuntil(b"\n"), _ROOM_LOOK_S)
                return result_from_json(line.decode())
        raise _DiskFilled

    async def _running_process(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *WORKER, repr(self._bytes_per_second), stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES_MAX
            )
            log.debug("compaction.started", extra=fields(pid=self._process.pid))
        return self._process

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

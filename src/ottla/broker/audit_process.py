"""Runs the process that counts what this broker leads; when it ends another one begins, after a pause."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Final

from ottla.observe.events import fields

log = logging.getLogger(__name__)

COUNTER: Final = ("-m", "ottla.audit.counting")
_PAUSE_S: Final = 0.25
_PAUSE_S_MAX: Final = 60.0
# It tells what it has counted; without that the next one counts it again.
_END_WITHIN_S: Final = 5.0
_EVERY_INTERFACE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class AuditProcess:
    """`address`: of a listener of this broker.  The process is a client of it, and ends with its standard input."""

    def __init__(self, address: tuple[str, int], node_id: int, window_ms: int, interval_ms: int) -> None:
        host, port = address
        host = _EVERY_INTERFACE.get(host, host)
        self._settings = json.dumps(
            {
                "bootstrap": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                "node_id": node_id,
                "window_ms": window_ms,
                "interval_ms": interval_ms,
                "log_level": logging.getLevelName(logging.getLogger().level).lower(),
            }
        )
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="audit")

    async def stop(self) -> None:
        """Let it tell the rest, while requests are still answered."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.write(b"end\n")
        try:
            async with asyncio.timeout(_END_WITHIN_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _PAUSE_S
        while True:
            began_s = loop.time()
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, *COUNTER, self._settings, stdin=PIPE, stdout=DEVNULL
                )
                status = await self._process.wait()
                log.warning("audit.process_ended", extra=fields(status=status))
            except OSError as error:
                log.warning("audit.process_not_started", extra=fields(error=str(error)))
            pause_s = _PAUSE_S if loop.time() - began_s > _PAUSE_S_MAX else min(2 * pause_s, _PAUSE_S_MAX)
            await asyncio.sleep(pause_s)

"""The schema registry beside a broker: a process of its own, which is started again when it ends.

Its work never stands in the broker's event loop.  It ends with the broker, however that ends: its standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from typing import Final

from ottla.model.listener import Listener
from ottla.model.serve_options import RegistryOptions
from ottla.observe.events import fields
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

COMMAND: Final = (sys.executable, "-m", "ottla", "registry", "serve", "--until-eof")
STOPS_WITHIN_S: Final = 15.0
_BACKOFF_S_MIN: Final = 0.5
_BACKOFF_S_MAX: Final = 30.0
# Who has run for so long did start.
_STARTED_AFTER_MS: Final = 30_000


class SchemaRegistryProcess:
    """`broker` is the address at which the registry reaches this broker."""

    def __init__(self, options: RegistryOptions, broker: tuple[str, int], clock: Clock) -> None:
        self._options = options
        self._command = command_line(options, broker)
        self._clock = clock
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name="schema-registry")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOPS_WITHIN_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _keep(self) -> None:
        backoff_s = _BACKOFF_S_MIN
        while True:
            started_ms = self._clock.monotonic_ms()
            # A session of its own: a terminal's Ctrl-C is for the broker, which ends it.
            self._process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, start_new_session=True)
            status = await self._process.wait()
            if self._clock.monotonic_ms() - started_ms >= _STARTED_AFTER_MS:
                backoff_s = _BACKOFF_S_MIN
            log.warning("registry.ended", extra=fields(status=status, again_after_ms=int(backoff_s * 1000)))
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, _BACKOFF_S_MAX)


def command_line(options: RegistryOptions, broker: tuple[str, int]) -> list[str]:
    words = [*COMMAND, "--bootstrap-server", _text(*broker), "--topic", options.topic]
    words += ["--listen", _text(options.listener.host, options.listener.port)]
    if options.replication_factor is not None:
        words += ["--replication-factor", str(options.replication_factor)]
    if options.advertised_url is not None:
        words += ["--advertise", options.advertised_url]
    if not options.listener.is_loopback:
        # It was accepted for the broker.
        words += ["--insecure-listen"]
    return words


def reachable(address: tuple[str, int]) -> tuple[str, int]:
    """Where this machine reaches what listens there."""
    host, port = address
    return ({"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


def _text(host: str, port: int) -> str:
    return str(Listener("", host, port)).removeprefix("://")

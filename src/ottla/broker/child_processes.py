"""Processes that are parts of a broker, the schema registry and the audit's counter: started again when they end, and
ended in order with the broker.

Their work never runs in the broker's event loop.  However the broker ends, its standard input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from typing import Final

from ottla.broker.net.advertising import reachable
from ottla.model.listener import address_text
from ottla.model.serve_options import RegistryOptions
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.restart_delays import RestartDelays

log = logging.getLogger(__name__)

# The line that ends a child process in order; one whose broker is gone reads the end of the file.
END: Final = b"end\n"
_DELAYS_MS: Final = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000)
# A process that has run for so long did start.
_STARTED_AFTER_MS: Final = 30_000

AUDIT_COMMAND: Final = ("-m", "ottla.audit.counter_process")
# At its end it reports what it has counted; without that the next process counts it again.
_AUDIT_STOPS_WITHIN_S: Final = 5.0
REGISTRY_COMMAND: Final = (sys.executable, "-m", "ottla", "registry", "serve", "--until-eof", "--settings-from-input")
_REGISTRY_STOPS_WITHIN_S: Final = 15.0


class ChildProcess:
    """`name` is for the log; `stops_within_s` is how long it has to end in order.

    `first_line` is the first of its input: what other users of the machine must not read, as they can a command.
    """

    def __init__(
        self, name: str, command: Sequence[str], clock: Clock, stops_within_s: float, first_line: bytes = b""
    ) -> None:
        self._name = name
        self._command = tuple(command)
        self._clock = clock
        self._stops_within_s = stops_within_s
        self._first_line = first_line
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=self._name)

    async def stop(self) -> None:
        """Let it end in order, while the broker still answers requests."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.write(END)
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), self._stops_within_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _keep(self) -> None:
        delays = RestartDelays(_DELAYS_MS, _STARTED_AFTER_MS)
        while True:
            started_ms = self._clock.monotonic_ms()
            try:
                # A separate session: a terminal's Ctrl-C is for the broker, which ends it.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=PIPE, stdout=DEVNULL, start_new_session=True
                )
                if self._process.stdin is not None and self._first_line:
                    self._process.stdin.write(self._first_line)
                log.warning("part.ended", extra=fields(part=self._name, status=await self._process.wait()))
            except OSError as error:
                # No descriptors, processes or memory left: the machine may have them again.
                log.warning("part.not_started", extra=fields(part=self._name, error=str(error)))
            await asyncio.sleep(delays.after(self._clock.monotonic_ms() - started_ms) / 1_000)


def audit_process(
    address: tuple[str, int],
    node_id: int,
    window_ms: int,
    interval_ms: int,
    command_config: str | None,
    clock: Clock,
) -> ChildProcess:
    """The process that counts what this broker leads, as a client of its listener at `address`, by the file
    `command_config`."""
    settings = json.dumps(
        {
            "bootstrap": address_text(*reachable(address)),
            "node_id": node_id,
            "window_ms": window_ms,
            "interval_ms": interval_ms,
            "command_config": command_config,
            "log_level": logging.getLevelName(logging.getLogger().level).lower(),
        }
    )
    return ChildProcess("audit", (sys.executable, *AUDIT_COMMAND, settings), clock, _AUDIT_STOPS_WITHIN_S)


def registry_process(
    options: RegistryOptions, broker: tuple[str, int], command_config: str | None, clock: Clock
) -> ChildProcess:
    """The schema registry; `broker` is the address at which it reaches this broker, by the file `command_config`."""
    command = registry_command(options, broker, command_config)
    first_line = json.dumps(options.settings_texts).encode() + b"\n"
    return ChildProcess("registry", command, clock, _REGISTRY_STOPS_WITHIN_S, first_line)


def registry_command(options: RegistryOptions, broker: tuple[str, int], command_config: str | None = None) -> list[str]:
    words = [*REGISTRY_COMMAND, "--bootstrap-server", address_text(*broker), "--topic", options.topic]
    if command_config is not None:
        words += ["--command-config", command_config]
    scheme = "https://" if options.listener.uses_tls else ""
    words += ["--listen", scheme + address_text(options.listener.host, options.listener.port)]
    if options.replication_factor is not None:
        words += ["--replication-factor", str(options.replication_factor)]
    if options.advertised_url is not None:
        words += ["--advertise", options.advertised_url]
    for host in options.allowed_hosts:
        words += ["--allow-host", host]
    if not options.listener.is_loopback:
        # It was accepted for the broker.
        words += ["--insecure-listen"]
    return words

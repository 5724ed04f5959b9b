"""The schema registry beside a broker: a separate process."""

from __future__ import annotations

import sys
from typing import Final

from ottla.broker.processes.child_process import ChildProcess
from ottla.model.listener import address_text
from ottla.model.serve_options import RegistryOptions
from ottla.runtime.clock import Clock

COMMAND: Final = (sys.executable, "-m", "ottla", "registry", "serve", "--until-eof")
STOPS_WITHIN_S: Final = 15.0


def schema_registry(options: RegistryOptions, broker: tuple[str, int], clock: Clock) -> ChildProcess:
    """`broker` is the address at which the registry reaches this broker."""
    return ChildProcess("registry", command_line(options, broker), clock, STOPS_WITHIN_S)


def command_line(options: RegistryOptions, broker: tuple[str, int]) -> list[str]:
    words = [*COMMAND, "--bootstrap-server", address_text(*broker), "--topic", options.topic]
    words += ["--listen", address_text(options.listener.host, options.listener.port)]
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

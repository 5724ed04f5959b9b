"""`ottla testing serve`: a broker at a fixed port, for tests of any language, until they have ended."""

from __future__ import annotations

import os
import select
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import assignments
from ottla.cli.exit_status import FAILED
from ottla.cli.output import say
from ottla.cli.testing.broker import LAST_LINES, broker_for_tests, settings_flag, topic_counts, topics_flag

if TYPE_CHECKING:
    from ottla.testing.controlled.broker import ControlledBroker
    from ottla.testing.interrupts import Interrupts

LOOK_EVERY_S: Final = 0.1
_READ_BYTES: Final = 65_536


@click.command(name="serve")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9092",
    show_default=True,
    help="Address to listen on; port 0 selects a free one.",
)
@topics_flag
@settings_flag
@click.option(
    "--until-eof", is_flag=True, help="End, too, when standard input ends: with the program that has its other end."
)
@click.option(
    "--insecure-listen",
    is_flag=True,
    help="Listen on an address that other machines can reach, without authentication or encryption.",
)
def command(
    listen: str, topics: tuple[str, ...], settings: tuple[str, ...], until_eof: bool, insecure_listen: bool
) -> int:
    """Run a broker for tests, over an empty temporary directory, until Ctrl-C or SIGTERM.

    When it is ready, its address is a line of standard output, the only one.  All that it has stored is gone when it
    ends, also when it is killed.
    """
    from ottla.testing.interrupts import Interrupts

    given, counts = assignments(settings, "--set"), topic_counts(topics)
    started_s = time.monotonic()
    with Interrupts() as interrupts:
        try:
            with broker_for_tests(given, counts, interrupts, listen=listen, insecure_listen=insecure_listen) as broker:
                say(broker.bootstrap)
                sys.stdout.flush()
                say(f"ready after {time.monotonic() - started_s:.1f} s; all is gone when it ends, by Ctrl-C", err=True)
                return _watch(broker, interrupts, until_eof=until_eof)
        except KeyboardInterrupt:
            return 0


def _watch(broker: ControlledBroker, interrupts: Interrupts, *, until_eof: bool) -> int:
    while not interrupts.came:
        if not broker.is_running:
            say(f"error: the broker {broker.ended_how}; its last lines:", err=True)
            for line in broker.log_lines[-LAST_LINES:]:
                say(f"    {line}", err=True)
            return FAILED
        if not until_eof:
            time.sleep(LOOK_EVERY_S)
        elif select.select([sys.stdin], [], [], LOOK_EVERY_S)[0] and not os.read(sys.stdin.fileno(), _READ_BYTES):
            break
    return 0

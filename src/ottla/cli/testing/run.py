"""`ottla testing run`: a command, beside a broker of its own."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import assignments
from ottla.cli.exit_status import INTERRUPTED
from ottla.cli.testing.broker import broker_for_tests, settings_flag, topic_counts, topics_flag
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.testing.interrupts import Interrupts

# Where the command finds the broker's address.
ADDRESS_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
LOOK_EVERY_S: Final = 0.1
ENDS_WITHIN_S: Final = 10.0
# As shells report a signal.
_SIGNALLED: Final = 128


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@topics_flag
@settings_flag
@click.argument("arguments", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(topics: tuple[str, ...], settings: tuple[str, ...], arguments: tuple[str, ...]) -> int:
    """Run a command beside a broker of its own, and exit as it does: `ottla testing run -- npm test`.

    Its environment has the broker's address as KAFKA_BOOTSTRAP_SERVERS, on a free port, so that several run at once.
    The broker and all that it has stored are gone when the command has ended.
    """
    from ottla.testing.interrupts import Interrupts

    given, counts = assignments(settings, "--set"), topic_counts(topics)
    with Interrupts() as interrupts:
        try:
            with broker_for_tests(given, counts, interrupts) as broker:
                return _run(arguments, {**os.environ, ADDRESS_VARIABLE: broker.bootstrap}, interrupts)
        except KeyboardInterrupt:
            return INTERRUPTED


def _run(arguments: tuple[str, ...], environment: dict[str, str], interrupts: Interrupts) -> int:
    try:
        process = subprocess.Popen(arguments, env=environment)
    except OSError as error:
        raise OttlaError(f"{arguments[0]} cannot be run: {error.strerror}", hint="name a command after --") from None
    while True:
        try:
            status = process.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if interrupts.came:
                return _end(process)
        else:
            return status if status >= 0 else _SIGNALLED - status


def _end(process: subprocess.Popen[bytes]) -> int:
    """It may have had the signal itself, from the terminal."""
    process.terminate()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return INTERRUPTED

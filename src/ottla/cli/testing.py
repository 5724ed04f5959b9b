"""`ottla testing`: a broker for tests in any language, alone or beside a command."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import assignments, insecure_listen_flag, listen_flag
from ottla.cli.exit_status import FAILED, INTERRUPTED
from ottla.cli.output import say
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.runtime.interrupts import Interrupts
    from ottla.testing.controlled.broker import ControlledBroker

LOOK_EVERY_S: Final = 0.1
ENDS_WITHIN_S: Final = 10.0
LAST_LINES: Final = 5
# As shells report a signal.
_SIGNALLED: Final = 128
_READ_BYTES: Final = 65_536


topics_flag: Final = click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    help="A topic to create.  Repeatable.",
)
settings_flag: Final = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting, as for `ottla serve`.  Neither the environment nor a file has others.",
)


def topic_counts(texts: Iterable[str]) -> dict[str, int]:
    """`NAME` and `NAME:PARTITIONS` as a mapping; a name alone has one partition."""
    counts: dict[str, int] = {}
    for text in texts:
        name, colon, count = text.partition(":")
        if not name or (colon and not (count.isdecimal() and int(count) > 0)):
            raise click.UsageError(f"--topic takes NAME or NAME:PARTITIONS, not {text!r}.")
        counts[name] = int(count) if colon else 1
    return counts


@contextmanager
def broker_for_tests(
    settings: Mapping[str, str],
    topics: Mapping[str, int],
    interrupts: Interrupts,
    *,
    listen: str = "127.0.0.1:0",
    insecure_listen: bool = False,
) -> Iterator[ControlledBroker]:
    """Ready, with these topics; it ends with this process, however that ends, and its directory is removed."""
    from ottla.client.admin.admin import Admin
    from ottla.client.wire.cluster import Cluster
    from ottla.testing.controlled.broker import ControlledBroker

    broker = ControlledBroker(settings, listen=listen, insecure_listen=insecure_listen)
    try:
        broker.launch()
        broker.wait_until_ready(check=interrupts.check)
        if topics:
            with Cluster(broker.bootstrap) as cluster:
                admin = Admin(cluster)
                for name, count in topics.items():
                    admin.create_topic(name, count)
        yield broker
    finally:
        broker.close()


@click.command(name="serve")
@listen_flag("127.0.0.1:9092")
@topics_flag
@settings_flag
@click.option(
    "--until-eof", is_flag=True, help="End, too, when standard input ends: with the program that has its other end."
)
@insecure_listen_flag
def serve(
    listen: str, topics: tuple[str, ...], settings: tuple[str, ...], until_eof: bool, insecure_listen: bool
) -> int:
    """Run a broker for tests, over an empty temporary directory, until Ctrl-C or SIGTERM.

    When it is ready, its address is a line of standard output, the only one.  All that it has stored is gone when it
    ends, also when it is killed.
    """
    from ottla.runtime.interrupts import Interrupts

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


@click.command(name="run", context_settings={"ignore_unknown_options": True})
@topics_flag
@settings_flag
@click.argument("arguments", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def run(topics: tuple[str, ...], settings: tuple[str, ...], arguments: tuple[str, ...]) -> int:
    """Run a command beside its own broker, and exit as it does: `ottla testing run -- npm test`.

    Its environment has the broker's address as KAFKA_BOOTSTRAP_SERVERS and OTTLA_BOOTSTRAP_SERVERS, on a free port, so
    that several run at once; Ottla's verbs and clients connect there unless they name another address.  The broker and
    all that it has stored are gone when the command has ended.
    """
    from ottla.runtime.interrupts import Interrupts

    given, counts = assignments(settings, "--set"), topic_counts(topics)
    with Interrupts() as interrupts:
        try:
            with broker_for_tests(given, counts, interrupts) as broker:
                return _run(arguments, environment_with(broker.bootstrap, os.environ), interrupts)
        except KeyboardInterrupt:
            return INTERRUPTED


def environment_with(bootstrap: str, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with this broker in it, and without the profile, the logins and the TLS of another one."""
    from ottla.client.wire.destination.destination import (
        ADDRESS_VARIABLES,
        COMMAND_CONFIG_VARIABLE,
        PROFILE_VARIABLE,
    )
    from ottla.client.wire.security.setting_names import environment_names

    of_others = {COMMAND_CONFIG_VARIABLE, PROFILE_VARIABLE, *environment_names()}
    kept = {name: text for name, text in environment.items() if name not in of_others}
    return {**kept, **dict.fromkeys(ADDRESS_VARIABLES, bootstrap)}


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

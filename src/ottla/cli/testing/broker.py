"""The flags and the broker that the verbs of `ottla testing` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from ottla.testing.controlled.broker import ControlledBroker
    from ottla.testing.interrupts import Interrupts

F = TypeVar("F", bound=Callable[..., object])

LAST_LINES: Final = 5


def topics_flag(function: F) -> F:
    option = click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="NAME[:PARTITIONS]",
        help="A topic to create.  Repeatable.",
    )
    return option(function)


def settings_flag(function: F) -> F:
    option = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting, as for `ottla serve`.  Neither the environment nor a file has others.",
    )
    return option(function)


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

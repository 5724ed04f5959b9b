"""Flags shared by the verbs that connect to a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ottla.cli.output import say

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.waiting import Waiting

F = TypeVar("F", bound=Callable[..., object])

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
# At a terminal no user waits a minute for an absent broker.
CALL_TIMEOUT_MS: Final = 15_000
UNKNOWN_TOPIC_WAIT_MS: Final = 1_000

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


def bootstrap_flag(function: F) -> F:
    option = click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        metavar="HOST:PORT,...",
        help="Bootstrap brokers.",
    )
    return option(function)


def property_flag(function: F) -> F:
    option = click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        help="Like Kafka's console tools; may be repeated.",
    )
    return option(function)


def tell_of_waiting() -> Waiting:
    """Says on standard error what a verb waits for."""
    from ottla.client.wire.waiting import Waiting

    return Waiting(lambda line: say(line, err=True))


def open_cluster(bootstrap: str, client_id: str, waiting: Waiting | None = None) -> Cluster:
    """A reachable cluster: a wrong address fails at once; only later failures are retried, with their reason."""
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.options import ClientOptions

    waiting = waiting or tell_of_waiting()
    options = ClientOptions(
        client_id=client_id, call_timeout_ms=CALL_TIMEOUT_MS, unknown_topic_wait_ms=UNKNOWN_TOPIC_WAIT_MS
    )
    cluster = Cluster(bootstrap, options, dial=waiting.dial, on_wait=waiting.on_wait)
    cluster.connect_any(cluster.retrying.deadline())
    return cluster


def check_reachable(bootstrap: str, client_id: str, flag: str) -> None:
    """A wrong address fails at once, and the error names its flag."""
    from ottla.client.wire.errors import BrokerUnreachable, ClientError

    try:
        open_cluster(bootstrap, client_id).close()
    except ClientError as error:
        if not error.is_retriable:
            raise
        hint = f"is the broker running, and is {flag} right?"
        raise BrokerUnreachable(f"{flag} {bootstrap}: {error}", hint=hint) from error


def one_topic(argument: str | None, option: str | None) -> str:
    """The topic, given as an argument or, as in Kafka's tools, with --topic."""
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"Two topics are named: {argument} and {option}.")
    topic = argument if argument is not None else option
    if not topic:
        raise click.UsageError("Name a topic.")
    return topic


def assignments(texts: Iterable[str], flag: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; a value may hold further equal signs."""
    found: dict[str, str] = {}
    for text in texts:
        name, equal_sign, value = text.partition("=")
        if not equal_sign or not name:
            raise click.UsageError(f"{flag} takes KEY=VALUE, not {text!r}.")
        if found.get(name, value) != value:
            raise click.UsageError(f"{flag} names {name} twice, as {found[name]!r} and as {value!r}.")
        found[name] = value
    return found


def check_names(found: Mapping[str, str], known: Iterable[str], flag: str) -> None:
    from ottla.model.nearest import nearest_name

    known = list(known)
    for name in found:
        if name not in known:
            nearest = nearest_name(name, known)
            ending = f"  Did you mean {nearest}?" if nearest is not None else f"  It knows {', '.join(known)}."
            raise click.UsageError(f"{flag} does not know {name!r}.{ending}")


def truth(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise click.UsageError(f"{name} is true or false, not {text!r}.")

"""Arguments shared by the verbs of `ottla group`: groups and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster

groups_argument: Final = click.argument("arguments", nargs=-1, metavar="GROUP...")
group_option: Final = click.option("--group", "options", multiple=True, metavar="GROUP", help="The same as GROUP.")

# The states of all kinds of groups; only Apache Kafka lists dead ones.
_STATES: Final = {
    state.lower(): state
    for state in (
        "Stable",
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Assigning",
        "Reconciling",
        "Dead",
    )
}


def one_group(argument: str | None, option: str | None) -> str:
    """The group, given as an argument or, as in Kafka's tools, with --group."""
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"Two groups are named: {argument} and {option}.")
    group_id = argument if argument is not None else option
    if not group_id:
        raise click.UsageError("Name a group.")
    return group_id


def some_groups(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*arguments, *options]))


def states_named(texts: Iterable[str]) -> list[str]:
    """States of groups as the protocol writes them, from `stable` or `Empty,Stable`.  Raises UsageError."""
    found: list[str] = []
    for word in (word.strip() for text in texts for word in text.split(",")):
        state = _STATES.get(word.lower())
        if state is None:
            raise click.UsageError(f"--state is one of {', '.join(_STATES.values())}, not {word!r}.")
        found.append(state)
    return found


def partitions_named(cluster: Cluster, texts: Iterable[str]) -> list[TopicPartition]:
    """`TOPIC` means all of its partitions, `TOPIC:0,2` these.  Raises UnknownTopic, UsageError."""
    found: list[TopicPartition] = []
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            found += [TopicPartition(topic, partition) for partition in cluster.partitions(topic)]
            continue
        for number in numbers.split(","):
            if not (number.isascii() and number.isdecimal() and len(number) <= 9):
                raise click.UsageError(f"--topic is TOPIC or TOPIC:0,1, not {text!r}.")
            partition = TopicPartition(topic, int(number))
            cluster.leader(partition)
            found.append(partition)
    return list(dict.fromkeys(found))

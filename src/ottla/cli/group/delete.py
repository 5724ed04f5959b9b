"""`ottla group delete` and `delete-offsets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli.group.flags import group_option, groups_argument, one_group, partitions_named, some_groups
from ottla.cli.group.homes import TwoGroups, home_flags, kind_flag, open_homes
from ottla.cli.output import say
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.client.wire.errors import BrokerRefused, ClientError


@click.command()
@groups_argument
@group_option
@home_flags
@kind_flag
@click.option("--if-exists", is_flag=True, help="A group that does not exist is no error.")
def delete(
    arguments: tuple[str, ...],
    options: tuple[str, ...],
    bootstrap: str | None,
    zookeeper: str | None,
    kind: str | None,
    if_exists: bool,
) -> None:
    """Delete groups without members, with their offsets."""
    wanted = some_groups(arguments, options)
    if not wanted:
        raise click.UsageError("Name at least one group.")

    from ottla.client.groups.groups import UnknownGroup
    from ottla.client.wire.errors import BrokerRefused

    refused: list[OttlaError] = []
    with open_homes(bootstrap, zookeeper) as homes:
        for group_id in wanted:
            try:
                homes.home_that_has(group_id, kind).delete(group_id)
                say(f"deleted group {group_id}")
            except UnknownGroup as error:
                if if_exists:
                    say(f"group {group_id} does not exist")
                else:
                    refused.append(error)
            except (BrokerRefused, TwoGroups) as error:
                refused.append(error)
    _raise_together(refused)


@click.command(name="delete-offsets")
@click.argument("group_argument", metavar="GROUP", required=False)
@click.option("--group", "group_named", metavar="GROUP", help="The same as GROUP.")
@home_flags
@kind_flag
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:0,1]",
    help="Offsets of this topic; may be repeated.",
)
def delete_offsets(
    group_argument: str | None,
    group_named: str | None,
    bootstrap: str | None,
    zookeeper: str | None,
    kind: str | None,
    topics: tuple[str, ...],
) -> None:
    """Delete a group's offsets of topics that none of its members reads."""
    group_id = one_group(group_argument, group_named)
    with open_homes(bootstrap, zookeeper) as homes:
        home = homes.home_that_has(group_id, kind)
        outcomes = home.delete_offsets(group_id, partitions_named(homes.cluster, topics))
    for partition, refusal in sorted(outcomes.items(), key=lambda item: item[0]):
        if refusal is None:
            say(f"deleted offset of {partition}")
    _raise_together(_by_topic(group_id, outcomes))


def _by_topic(group_id: str, outcomes: Mapping[TopicPartition, BrokerRefused | None]) -> list[ClientError]:
    """The refusals, merged by topic and reason."""
    from ottla.client.wire.errors import BrokerRefused

    alike: dict[tuple[str, str], list[tuple[TopicPartition, BrokerRefused]]] = {}
    for partition, refusal in sorted(outcomes.items(), key=lambda item: item[0]):
        if refusal is not None:
            alike.setdefault((partition.topic, refusal.reason), []).append((partition, refusal))
    refused: list[ClientError] = []
    for (topic, reason), rows in alike.items():
        one = rows[0][1]
        numbers = ", ".join(str(partition.partition) for partition, _ in rows)
        subject = one.subject if len(rows) == 1 else f"group {group_id}, topic {topic} (partitions {numbers})"
        refused.append(BrokerRefused(one.code, subject, reason, hint=one.hint))
    return refused


def _raise_together(refused: Sequence[OttlaError]) -> None:
    """One error for all refusals; successes were printed before."""
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise OttlaError("; ".join(str(error) for error in refused), hint=refused[0].hint)

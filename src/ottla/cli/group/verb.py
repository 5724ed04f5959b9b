"""`ottla group`: groups of consumers with their members and lag."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ottla.cli.client_flags import all_names, one_name, output_flag
from ottla.cli.group import reset as group_reset
from ottla.cli.group.group_admins import (
    KINDS,
    GroupAdmins,
    TwoGroups,
    all_or_groups_argument,
    group_flags,
    group_option,
    groups_argument,
    kind_flag,
    open_group_admins,
    states_named,
)
from ottla.cli.output import data_lines, raise_together, say, table
from ottla.cli.partition_names import partitions_named
from ottla.cli.verb_group import VerbGroup
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.cli.group.tables import ShownGroup
    from ottla.client.groups.group_types import GroupOperations
    from ottla.client.wire.errors import BrokerRefused, ClientError


@click.group(name="group", cls=VerbGroup)
def command() -> None:
    """List, describe, move and delete groups of consumers.

    Groups are of three types: classic and consumer at the brokers, and tree, whose consumers share partitions by
    themselves in the ZooKeeper that the brokers have.
    """


command.add_command(group_reset.command)


@command.command(name="list")
@group_flags
@click.option("--state", "texts", multiple=True, metavar="STATE,...", help="Only groups in these states: Stable, ...")
@click.option("--type", "kinds", multiple=True, type=click.Choice(KINDS), help="Only groups of this type.")
@click.option("--long", "is_long", is_flag=True, help="Also type and state.")
@output_flag("One object for each group.")
def list_groups(
    bootstrap: str | None,
    zookeeper: str | None,
    texts: tuple[str, ...],
    kinds: tuple[str, ...],
    is_long: bool,
    as_data: bool,
) -> None:
    """Show the names of all groups."""
    states = states_named(texts)
    with open_group_admins(bootstrap, zookeeper) as admins:
        groups = admins.list_groups(states, kinds)
        if not kinds:
            admins.note_what_is_missing()
    if as_data:
        for each in groups:
            shown = {"group": each.group_id, "type": each.kind, "protocol_type": each.protocol_type}
            say(*data_lines({**shown, "state": each.state}))
    elif is_long:
        rows = [(each.group_id, each.kind, each.protocol_type, each.state) for each in groups]
        say(*table(["GROUP", "TYPE", "PROTOCOL", "STATE"], rows))
    else:
        for name in dict.fromkeys(each.group_id for each in groups):
            say(name)


@command.command()
@all_or_groups_argument
@group_option
@group_flags
@click.option("--type", "kind", type=click.Choice(KINDS), help="Only the groups of this type.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--members", "shows_members", is_flag=True, help="Its members and their partitions.")
@click.option("--state", "shows_state", is_flag=True, help="State, coordinator, assignor.")
@click.option("--offsets", "shows_offsets", is_flag=True, help="Offsets and lag: the default.")
@output_flag("One object for each group, with all of it.")
def describe(
    arguments: tuple[str, ...],
    options: tuple[str, ...],
    bootstrap: str | None,
    zookeeper: str | None,
    kind: str | None,
    all_groups: bool,
    shows_members: bool,
    shows_state: bool,
    shows_offsets: bool,
    as_data: bool,
) -> None:
    """Show the progress of each group: its lag in records, and in seconds the age of the next record to read.

    \b
    ottla group describe billing --members

    In a group of type tree each stream of a consumer is a member.
    """
    wanted = all_names(arguments, options)
    if bool(wanted) == all_groups:
        raise click.UsageError("Name groups, or give --all-groups.")
    if shows_members + shows_state + shows_offsets > 1:
        raise click.UsageError("--members, --state and --offsets exclude each other.")

    from ottla.cli.group import tables as group_tables

    with open_group_admins(bootstrap, zookeeper) as admins:
        groups = [each for name in wanted for each in _described(admins, name, kind)] or _every_group(admins, kind)
        partition_lags = []
        if as_data or not (shows_members or shows_state):
            partition_lags = group_tables.partition_lags(admins.cluster, groups)
    if as_data:
        for shown in groups:
            say(*data_lines(group_tables.group_object(shown, partition_lags)))
        return
    if shows_members:
        say(*group_tables.members_table(groups))
    elif shows_state:
        say(*group_tables.states_table(groups))
    else:
        say(*group_tables.offsets_table(partition_lags))
        for problem in dict.fromkeys(each.lag.problem for each in partition_lags if each.lag.problem is not None):
            say(f"note: no lag of {problem}", err=True)
        empty = [shown.group.group_id for shown in groups if not shown.group.members]
        if len(empty) > 1:
            say(f"note: {len(empty)} of {len(groups)} groups have no active members", err=True)
        elif empty:
            say(f"note: group {empty[0]} has no active members", err=True)
        for shown in groups:
            if shown.pending:
                partitions = ", ".join(map(str, sorted(shown.pending)))
                say(f"note: group {shown.group.group_id}: open transactions may change {partitions}", err=True)
    for shown in groups:
        for problem in shown.group.problems:
            say(f"note: group {shown.group.group_id}: {problem}", err=True)


def _described(admins: GroupAdmins, group_id: str, kind: str | None) -> list[ShownGroup]:
    """The group of this name, or the two; read with its offsets."""
    from ottla.client.groups.groups import UnknownGroup
    from ottla.model.nearest import nearest_name

    found = [_shown(admin, group_id) for admin in admins.admins_of(group_id, kind)]
    if found:
        return found
    admins.note_what_is_missing()
    names = {each.group_id for each in admins.list_groups((), () if kind is None else (kind,))}
    nearest = nearest_name(group_id, sorted(names))
    what = f"group {group_id}" if kind is None else f"a group {group_id} of type {kind}"
    raise UnknownGroup(f"{what} does not exist", hint=f"did you mean {nearest}?" if nearest else None)


def _every_group(admins: GroupAdmins, kind: str | None) -> list[ShownGroup]:
    """All groups of the kinds that can be described (not share groups), except those deleted meanwhile."""
    from ottla.client.groups.group_types import TREE
    from ottla.client.groups.groups import UnknownGroup

    if kind is None:
        admins.note_what_is_missing()
    found: list[ShownGroup] = []
    for each in admins.list_groups((), () if kind is None else (kind,)):
        admin = admins.tree if each.kind == TREE else admins.brokers
        if each.kind in {"", *KINDS} and admin is not None:
            with contextlib.suppress(UnknownGroup):
                found.append(_shown(admin, each.group_id))
    return found


def _shown(admin: GroupOperations, group_id: str) -> ShownGroup:
    from ottla.cli.group.tables import ShownGroup

    return ShownGroup(admin.describe(group_id), admin.committed(group_id), admin.pending(group_id))


@command.command()
@groups_argument
@group_option
@group_flags
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
    """Delete groups without members, with their offsets.

    \b
    ottla group delete billing
    """
    wanted = all_names(arguments, options)
    if not wanted:
        raise click.UsageError("Name at least one group.")

    from ottla.client.groups.groups import UnknownGroup
    from ottla.client.wire.errors import BrokerRefused

    refused: list[OttlaError] = []
    with open_group_admins(bootstrap, zookeeper) as admins:
        for group_id in wanted:
            try:
                admins.admin_that_has(group_id, kind).delete(group_id)
                say(f"deleted group {group_id}")
            except UnknownGroup as error:
                if if_exists:
                    say(f"group {group_id} does not exist")
                else:
                    refused.append(error)
            except (BrokerRefused, TwoGroups) as error:
                refused.append(error)
    raise_together(refused)


@command.command(name="delete-offsets")
@click.argument("group_argument", metavar="GROUP", required=False)
@click.option("--group", "group_named", metavar="GROUP", help="The same as GROUP.")
@group_flags
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
    """Delete a group's offsets of topics that none of its members reads.

    \b
    ottla group delete-offsets billing --topic clicks:0,1
    """
    group_id = one_name("group", group_argument, group_named)
    with open_group_admins(bootstrap, zookeeper) as admins:
        admin = admins.admin_that_has(group_id, kind)
        outcomes = admin.delete_offsets(group_id, partitions_named(admins.cluster, topics))
    for partition, refusal in sorted(outcomes.items(), key=lambda item: item[0]):
        if refusal is None:
            say(f"deleted offset of {partition}")
    raise_together(_by_topic(group_id, outcomes))


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

"""`ottla group`: consumer groups with their members and lag; moves and deletes them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from ottla.cli import group_reset
from ottla.cli.client_flags import bootstrap_flag, open_cluster
from ottla.cli.group_flags import one_group, partitions_named, some_groups, states_named
from ottla.cli.table import table
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.observe.text import safe_line

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster
    from ottla.client.errors import BrokerRefused, ClientError
    from ottla.client.group_types import CommittedOffset, GroupDescription, GroupMember
    from ottla.client.groups import GroupAdmin
    from ottla.client.lag import Lag

_GROUPS = click.argument("arguments", nargs=-1, metavar="GROUP...")
_GROUP_FLAG = click.option("--group", "options", multiple=True, metavar="GROUP", help="The same as GROUP.")


@click.group(name="group")
def command() -> None:
    """List, describe, move and delete groups of consumers."""


command.add_command(group_reset.command)


@command.command(name="list")
@bootstrap_flag
@click.option("--state", "texts", multiple=True, metavar="STATE,...", help="Only groups in these states: Stable, ...")
@click.option(
    "--type", "kinds", multiple=True, type=click.Choice(["classic", "consumer"]), help="Only groups of this kind."
)
@click.option("--long", "is_long", is_flag=True, help="Also kind and state.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each group.")
def list_groups(bootstrap: str, texts: tuple[str, ...], kinds: tuple[str, ...], is_long: bool, as_json: bool) -> None:
    """Show the ids of all groups."""
    states = states_named(texts)

    from ottla.client.groups import GroupAdmin

    with open_cluster(bootstrap, "ottla-group") as cluster:
        groups = GroupAdmin(cluster).list_groups(states, kinds)
    if as_json:
        for each in groups:
            shown = {"group": each.group_id, "type": each.kind, "protocol_type": each.protocol_type}
            click.echo(json.dumps({**shown, "state": each.state}))
    elif is_long:
        rows = [(each.group_id, each.kind, each.protocol_type, each.state) for each in groups]
        click.echo(table(["GROUP", "TYPE", "PROTOCOL", "STATE"], rows))
    else:
        for each in groups:
            click.echo(each.group_id)


@command.command()
@_GROUPS
@_GROUP_FLAG
@bootstrap_flag
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--members", "shows_members", is_flag=True, help="Its members and their partitions.")
@click.option("--state", "shows_state", is_flag=True, help="State, coordinator, assignor.")
@click.option("--offsets", "shows_offsets", is_flag=True, help="Offsets and lag: the default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each group, with all of it.")
def describe(
    arguments: tuple[str, ...],
    options: tuple[str, ...],
    bootstrap: str,
    all_groups: bool,
    shows_members: bool,
    shows_state: bool,
    shows_offsets: bool,
    as_json: bool,
) -> None:
    """Show the progress of each group: its lag in records, and in seconds the age of the next record to read."""
    wanted = some_groups(arguments, options)
    if bool(wanted) == all_groups:
        raise click.UsageError("Name groups, or give --all-groups.")
    if shows_members + shows_state + shows_offsets > 1:
        raise click.UsageError("--members, --state and --offsets exclude each other.")

    from ottla.client.groups import GroupAdmin

    with open_cluster(bootstrap, "ottla-group") as cluster:
        admin = GroupAdmin(cluster)
        groups = [_described(admin, group_id) for group_id in wanted] if wanted else _every_group(admin)
        partition_lags = []
        if as_json or not (shows_members or shows_state):
            partition_lags = _partition_lags(cluster, admin, groups)
    if as_json:
        for group in groups:
            click.echo(json.dumps(_object(group, [each for each in partition_lags if each.group is group])))
    elif shows_members:
        click.echo(_members_table(groups))
    elif shows_state:
        click.echo(_states_table(groups))
    else:
        click.echo(_offsets_table(partition_lags))
        for problem in dict.fromkeys(each.lag.problem for each in partition_lags if each.lag.problem is not None):
            click.echo(f"note: no lag of {safe_line(problem)}", err=True)
        for group in groups:
            if not group.members:
                click.echo(f"note: group {group.group_id} has no active members", err=True)


@command.command()
@_GROUPS
@_GROUP_FLAG
@bootstrap_flag
@click.option("--if-exists", is_flag=True, help="A group that does not exist is no error.")
def delete(arguments: tuple[str, ...], options: tuple[str, ...], bootstrap: str, if_exists: bool) -> None:
    """Delete groups without members, with their offsets."""
    wanted = some_groups(arguments, options)
    if not wanted:
        raise click.UsageError("Name at least one group.")

    from ottla.client.errors import BrokerRefused
    from ottla.client.groups import GroupAdmin, UnknownGroup

    refused: list[ClientError] = []
    with open_cluster(bootstrap, "ottla-group") as cluster:
        admin = GroupAdmin(cluster)
        for group_id in wanted:
            try:
                admin.delete(group_id)
                click.echo(f"deleted group {group_id}")
            except UnknownGroup as error:
                if if_exists:
                    click.echo(f"group {group_id} does not exist")
                else:
                    refused.append(error)
            except BrokerRefused as error:
                refused.append(error)
    _raise_together(refused)


@command.command(name="delete-offsets")
@click.argument("group_argument", metavar="GROUP", required=False)
@click.option("--group", "group_option", metavar="GROUP", help="The same as GROUP.")
@bootstrap_flag
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:0,1]",
    help="Offsets of this topic; may be repeated.",
)
def delete_offsets(
    group_argument: str | None, group_option: str | None, bootstrap: str, topics: tuple[str, ...]
) -> None:
    """Delete a group's offsets of topics that none of its members reads."""
    group_id = one_group(group_argument, group_option)

    from ottla.client.groups import GroupAdmin

    with open_cluster(bootstrap, "ottla-group") as cluster:
        outcomes = GroupAdmin(cluster).delete_offsets(group_id, partitions_named(cluster, topics))
    for partition, refusal in sorted(outcomes.items(), key=lambda item: item[0]):
        if refusal is None:
            click.echo(f"deleted offset of {partition}")
    _raise_together(_by_topic(group_id, outcomes))


def _by_topic(group_id: str, outcomes: Mapping[TopicPartition, BrokerRefused | None]) -> list[ClientError]:
    """The refusals, merged by topic and reason."""
    from ottla.client.errors import BrokerRefused

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


def _raise_together(refused: Sequence[ClientError]) -> None:
    """One error for all refusals; successes were printed before."""
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise OttlaError("; ".join(str(error) for error in refused), hint=refused[0].hint)


def _described(admin: GroupAdmin, group_id: str) -> GroupDescription:
    from ottla.client.groups import UnknownGroup
    from ottla.model.nearest import nearest_name

    try:
        return admin.describe(group_id)
    except UnknownGroup as error:
        nearest = nearest_name(group_id, [each.group_id for each in admin.list_groups()])
        raise UnknownGroup(str(error), hint=f"did you mean {nearest}?" if nearest else None) from None


def _every_group(admin: GroupAdmin) -> list[GroupDescription]:
    """All groups of the kinds that can be described (not share groups), except those deleted meanwhile."""
    from ottla.client.group_types import CLASSIC, CONSUMER
    from ottla.client.groups import UnknownGroup

    found: list[GroupDescription] = []
    for each in admin.list_groups():
        if each.kind in {"", CLASSIC, CONSUMER}:
            with contextlib.suppress(UnknownGroup):
                found.append(admin.describe(each.group_id))
    return found


# --- lag -------------------------------------------------------------------------------------------


class _PartitionLag(NamedTuple):
    """One group in one partition; `committed` None: assigned, and nothing committed yet."""

    group: GroupDescription
    partition: TopicPartition
    committed: CommittedOffset | None
    lag: Lag
    owner: GroupMember | None


def _partition_lags(cluster: Cluster, admin: GroupAdmin, groups: Sequence[GroupDescription]) -> list[_PartitionLag]:
    from ottla.client.lag import lags

    found: list[_PartitionLag] = []
    for group in groups:
        committed = admin.committed(group.group_id)
        owners = group.owners()
        positions: dict[TopicPartition, int | None] = dict.fromkeys(owners)
        positions |= {partition: at.offset for partition, at in committed.items()}
        for partition, lag in sorted(lags(cluster, positions).items(), key=lambda item: item[0]):
            found.append(_PartitionLag(group, partition, committed.get(partition), lag, owners.get(partition)))
    return found


# --- output --------------------------------------------------------------------------------------------


def _seconds(lag: Lag) -> str | None:
    return None if lag.lag_seconds is None else f"{lag.lag_seconds:.1f}".removesuffix(".0")


def _offsets_table(partition_lags: Sequence[_PartitionLag]) -> str:
    head = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-SECONDS"]
    rows = [
        (
            each.group.group_id,
            each.partition.topic,
            each.partition.partition,
            None if each.committed is None else each.committed.offset,
            each.lag.end_offset,
            each.lag.lag_records,
            _seconds(each.lag),
            each.owner and each.owner.member_id,
            each.owner and each.owner.host,
            each.owner and each.owner.client_id,
        )
        for each in partition_lags
    ]
    return table([*head, "CONSUMER-ID", "HOST", "CLIENT-ID"], rows)


def _members_table(groups: Sequence[GroupDescription]) -> str:
    rows = [
        (
            group.group_id,
            member.member_id,
            member.instance_id,
            member.host,
            member.client_id,
            len(member.assignment),
            ",".join(map(str, member.assignment)),
        )
        for group in groups
        for member in group.members
    ]
    return table(["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"], rows)


def _states_table(groups: Sequence[GroupDescription]) -> str:
    rows = [
        (group.group_id, group.coordinator, group.assignor, group.kind, group.state, len(group.members))
        for group in groups
    ]
    return table(["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "TYPE", "STATE", "#MEMBERS"], rows)


def _object(group: GroupDescription, partition_lags: Sequence[_PartitionLag]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": group.coordinator._asdict(),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": [each._asdict() for each in member.assignment],
            }
            for member in group.members
        ],
        "offsets": [
            {
                **each.partition._asdict(),
                "committed_offset": None if each.committed is None else each.committed.offset,
                "metadata": None if each.committed is None else each.committed.metadata,
                "end_offset": each.lag.end_offset,
                "lag_records": each.lag.lag_records,
                "lag_seconds": each.lag.lag_seconds,
                "problem": each.lag.problem,
                "member_id": None if each.owner is None else each.owner.member_id,
            }
            for each in partition_lags
        ],
    }

"""What `ottla group describe` shows: groups with their offsets and lags, as tables and objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cli.output import table
from ottla.client.admin.lag import Lag, lags
from ottla.client.groups.group_types import CommittedOffset, GroupDescription, GroupMember
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition


class ShownGroup(NamedTuple):
    """A group, what it has committed, and the partitions whose offset an open transaction may change."""

    group: GroupDescription
    committed: Mapping[TopicPartition, CommittedOffset]
    pending: frozenset[TopicPartition] = frozenset()


class PartitionLag(NamedTuple):
    """One group in one partition; `committed` None: assigned, or to be, and nothing committed yet."""

    group: GroupDescription
    partition: TopicPartition
    committed: CommittedOffset | None
    lag: Lag
    owner: GroupMember | None


def partition_lags(cluster: Cluster, groups: Sequence[ShownGroup]) -> list[PartitionLag]:
    found: list[PartitionLag] = []
    for group, committed, pending in groups:
        owners = group.owners()
        positions: dict[TopicPartition, int | None] = dict.fromkeys([*owners, *pending])
        positions |= dict.fromkeys(partition for member in group.members for partition in member.target)
        positions |= {partition: at.offset for partition, at in committed.items()}
        for partition, lag in sorted(lags(cluster, positions).items(), key=lambda item: item[0]):
            found.append(PartitionLag(group, partition, committed.get(partition), lag, owners.get(partition)))
    return found


def _seconds(lag: Lag) -> str | None:
    return None if lag.lag_seconds is None else f"{lag.lag_seconds:.1f}".removesuffix(".0")


def offsets_table(partition_lags: Sequence[PartitionLag]) -> list[str]:
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


def members_table(groups: Sequence[ShownGroup]) -> list[str]:
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
        for group, *_ in groups
        for member in group.members
    ]
    return table(["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"], rows)


def states_table(groups: Sequence[ShownGroup]) -> list[str]:
    rows = [
        (group.group_id, group.coordinator, group.assignor, group.kind, group.state, len(group.members))
        for group, *_ in groups
    ]
    return table(["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "TYPE", "STATE", "#MEMBERS"], rows)


def group_object(shown: ShownGroup, partition_lags: Sequence[PartitionLag]) -> dict[str, object]:
    group = shown.group
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": None if group.coordinator is None else group.coordinator._asdict(),
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
        "problems": list(group.problems),
        "offsets": [
            {
                **each.partition._asdict(),
                "committed_offset": None if each.committed is None else each.committed.offset,
                "metadata": None if each.committed is None else each.committed.metadata,
                "is_pending": each.partition in shown.pending,
                "end_offset": each.lag.end_offset,
                "lag_records": each.lag.lag_records,
                "lag_seconds": each.lag.lag_seconds,
                "problem": each.lag.problem,
                "member_id": None if each.owner is None else each.owner.member_id,
            }
            for each in partition_lags
            if each.group is group
        ],
    }

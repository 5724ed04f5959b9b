"""How far a group is from what its consumers agree on: who should own what, and does not yet.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.consumer_registry.group_contents import GroupContents
from ottla.client.groups.group_types import EMPTY, RECONCILING, STABLE, GroupMember
from ottla.consumers.share import GroupView, share_of
from ottla.consumers.stream_id import StreamId
from ottla.model.identifiers import TopicPartition

# More of the same are counted.
PROBLEMS_MAX = 10


class GroupStanding(NamedTuple):
    """`state` in the words of Kafka's groups.  `problems` say what keeps it from being stable, for people."""

    state: str
    members: tuple[GroupMember, ...]
    problems: tuple[str, ...]


def standing_of(contents: GroupContents, partitions_counts: Mapping[str, int]) -> GroupStanding:
    """`partitions_counts` are those of all topics: a filter selects from them."""
    consumers = {
        consumer_id: dict(node.subscription.streams_counts(partitions_counts))
        for consumer_id, node in contents.consumers.items()
    }
    view = GroupView(consumers, partitions_counts)
    shares = {
        partition: stream for consumer_id in consumers for partition, stream in share_of(view, consumer_id).items()
    }
    misplaced = [
        _problem(partition, stream, contents.owners.get(partition), consumers)
        for partition, stream in sorted(shares.items())
        if contents.owners.get(partition) != stream
    ]
    abandoned = [
        f"{partition} is held by {stream}, and no consumer of the group reads it"
        for partition, stream in sorted(contents.owners.items())
        if partition not in shares
    ]
    missing = sorted({topic for topics in consumers.values() for topic in topics} - partitions_counts.keys())
    problems = [
        *_at_most(misplaced + abandoned),
        *_at_most([f"topic {topic} is read, and does not exist" for topic in missing]),
        *_at_most([str(error) for error in contents.damaged]),
    ]
    members = _members(contents, consumers, shares)
    state = EMPTY if not members else RECONCILING if misplaced or abandoned else STABLE
    return GroupStanding(state, members, tuple(problems))


def _problem(
    partition: TopicPartition, stream: StreamId, holder: StreamId | None, consumers: Mapping[str, object]
) -> str:
    if holder is None:
        return f"{partition} has no owner: it falls to {stream}"
    if holder.consumer_id not in consumers:
        return f"{partition} is held by {holder}, which has left or lost its session, until that ends"
    return f"{partition} is held by {holder}, and falls to {stream}"


def _members(
    contents: GroupContents, consumers: Mapping[str, Mapping[str, int]], shares: Mapping[TopicPartition, StreamId]
) -> tuple[GroupMember, ...]:
    """Each stream is a member: it is what owns partitions.  Also one that owns some and is registered no more."""
    owned: dict[StreamId, list[TopicPartition]] = {}
    for partition, stream in sorted(contents.owners.items()):
        owned.setdefault(stream, []).append(partition)
    targets: dict[StreamId, list[TopicPartition]] = {}
    for partition, stream in sorted(shares.items()):
        targets.setdefault(stream, []).append(partition)
    streams = set(owned)
    for consumer_id, topics in consumers.items():
        # A filter that selects nothing yet has its streams, too.
        count = max(topics.values(), default=contents.consumers[consumer_id].subscription.filter_streams_count)
        streams |= {StreamId(consumer_id, number) for number in range(count)}
    members: list[GroupMember] = []
    for stream in sorted(streams):
        node = contents.consumers.get(stream.consumer_id)
        client_id, host = ("", "") if node is None else (node.client_id, node.host)
        members.append(
            GroupMember(
                str(stream), None, client_id, host, -1, tuple(owned.get(stream, ())), tuple(targets.get(stream, ()))
            )
        )
    return tuple(members)


def _at_most(texts: list[str]) -> list[str]:
    rest = len(texts) - PROBLEMS_MAX
    return texts if rest <= 0 else [*texts[:PROBLEMS_MAX], f"... and {rest} more"]

"""Descriptions of groups of each kind: classic (generations), consumer (KIP-848, epochs), and tree (no coordinator).

`GroupOperations` is what an operator does with groups, at the brokers' coordinators or in the tree.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.client.wire.errors import BrokerRefused
from ottla.model.errors import ConfigError, WireError
from ottla.model.identifiers import TopicPartition

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
# Its consumers share partitions without a coordinator, over the tree that the brokers have in ZooKeeper.
TREE: Final = "tree"
STABLE: Final = "Stable"
RECONCILING: Final = "Reconciling"
EMPTY: Final = "Empty"
# The group has no members.
INACTIVE_STATES: Final = frozenset({EMPTY, "Dead"})

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


class ListedGroup(NamedTuple):
    """`state` and `kind` are empty where the broker is too old to return them."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class Coordinator(NamedTuple):
    """The coordinator of a group."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({self.node_id})"


class GroupMember(NamedTuple):
    """`epoch` is -1 but in consumer groups; `target` is the target assignment of their members.

    In a tree group each stream of a consumer is a member, and its share the target.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`epoch` is the group epoch of a consumer group, -1 of others; `assignor` its protocol's name.

    A tree group has no coordinator.  `problems` say, for people, what keeps it from being stable.
    """

    group_id: str
    kind: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int
    coordinator: Coordinator | None
    members: tuple[GroupMember, ...]
    problems: tuple[str, ...] = ()

    @property
    def is_live(self) -> bool:
        return self.state not in INACTIVE_STATES

    def owners(self) -> dict[TopicPartition, GroupMember]:
        """The member that reads each partition now."""
        return {partition: member for member in self.members for partition in member.assignment}


class CommittedOffset(NamedTuple):
    """`offset` is the next one to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(NamedTuple):
    """A group, and which member of it commits: its generation or epoch (KIP-447).  Without a member: any program."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


class GroupOffsets(NamedTuple):
    """What a transaction commits to a group: the next offset of each partition, as this member."""

    group: GroupMetadata
    offsets: Mapping[TopicPartition, CommittedOffset]


# As a user writes offsets: `{("page-views", 0): 17}`.
NamedOffsets: TypeAlias = Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]


def group_offsets_of(offsets: GroupOffsets | NamedOffsets, group: str | None) -> GroupOffsets:
    """Of a stream, or by name and without a member.  Raises ConfigError unless the group is known, from one of both."""
    if isinstance(offsets, GroupOffsets):
        if group is not None:
            raise ConfigError(f"the offsets are of group {offsets.group.group_id}", hint="leave group out")
        return offsets
    if not isinstance(group, str) or not group:
        raise ConfigError(f"the offsets of which group? {group!r} is none", hint='give group="its name"')
    named = {TopicPartition(*partition): CommittedOffset(offset) for partition, offset in offsets.items()}
    return GroupOffsets(GroupMetadata(group), named)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a classic member's assignment (ConsumerProtocolAssignment, version int16, topics).

    Other protocol types have other bytes there: raises `WireError` for unreadable ones.
    """
    if not data:
        return ()
    position = _INT16.size
    found: list[TopicPartition] = []
    try:
        (topics_count,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        for _ in range(_checked(topics_count, len(data) - position)):
            (length,) = _INT16.unpack_from(data, position)
            position += _INT16.size
            topic = data[position : position + _checked(length, len(data) - position)].decode()
            position += length
            (count,) = _INT32.unpack_from(data, position)
            position += _INT32.size
            _checked(count, (len(data) - position) // _INT32.size)
            found += [
                TopicPartition(topic, partition)
                for (partition,) in _INT32.iter_unpack(data[position : position + count * _INT32.size])
            ]
            position += count * _INT32.size
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a member's assignment cannot be read: {error}") from error
    return tuple(sorted(found))


def _checked(count: int, limit: int) -> int:
    if not 0 <= count <= limit:
        raise WireError(f"a member's assignment claims {count} of something, and {limit} bytes are left")
    return count


class GroupOperations(Protocol):
    """Implemented for the groups of coordinators and for those of the tree; a missing group raises `UnknownGroup`."""

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        """By id; filtered by `states` and `kinds`."""
        ...

    def describe(self, group_id: str) -> GroupDescription: ...

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Without the partitions that have none."""
        ...

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions whose offset an open transaction may change."""
        ...

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set offsets; the group is made when there is none."""
        ...

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BrokerRefused | None]:
        """Delete committed offsets; None is success.  Refused for topics that the group reads."""
        ...

    def delete(self, group_id: str) -> None:
        """Delete a group without members, with its offsets."""
        ...

"""A place where groups are kept: a broker's coordinators, or the tree of consumers without a master."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ottla.client.groups.group_types import CommittedOffset, GroupDescription, ListedGroup
from ottla.client.wire.errors import BrokerRefused
from ottla.model.identifiers import TopicPartition


class GroupHome(Protocol):
    """What an operator may do with the groups of one home; a group that is not there raises `UnknownGroup`."""

    def list_groups(self, states: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[ListedGroup]:
        """By id; filtered by `states` and `kinds`."""
        ...

    def describe(self, group_id: str) -> GroupDescription: ...

    def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Without the partitions that have none."""
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

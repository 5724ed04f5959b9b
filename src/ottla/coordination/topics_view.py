"""All topics at one moment: immutable, shared freely, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import PartitionState


class Move(NamedTuple):
    """A change of a partition's replicas that is under way (KIP-455).

    `adding` have yet to come in sync.  When all replicas but `removing` are, those are no replicas any more.
    """

    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()


NO_MOVE: Final = Move()


class PartitionNode(NamedTuple):
    """A partition of a topic: its assigned replicas, and its state with the version that a change must expect.

    While they move, `replicas` are those of before and after: first the later ones, in the requested order.
    """

    partition_index: int
    replicas: tuple[NodeId, ...]
    state: PartitionState
    state_version: int
    move: Move = NO_MOVE

    @property
    def is_moving(self) -> bool:
        return self.move != NO_MOVE

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas after the move that is under way; the present ones when there is none."""
        removing = self.move.removing
        return tuple(node for node in self.replicas if node not in removing) if removing else self.replicas

    @property
    def origin(self) -> tuple[NodeId, ...]:
        """The replicas before the move that is under way; the present ones when there is none."""
        adding = self.move.adding
        return tuple(node for node in self.replicas if node not in adding) if adding else self.replicas

    @property
    def replicas_count_min(self) -> int:
        """The number of replicas before or after a move, the smaller of both: more need not be in sync meanwhile."""
        return min(len(self.target), len(self.origin))

    def min_in_sync(self, min_insync_replicas: int) -> int:
        """How many replicas have to be in sync by this setting: never more than there are."""
        return min(min_insync_replicas, self.replicas_count_min)


class Topic(NamedTuple):
    """A topic; `partitions[i].partition_index == i`."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionNode, ...]


@dataclass(frozen=True, slots=True)
class TopicsView:
    """Topics by name and by id.  A view with a higher `version` is newer; equal versions are the same view."""

    version: int
    by_name: Mapping[str, Topic]
    by_id: Mapping[UUID, Topic]

    @classmethod
    def of(cls, version: int, topics: Mapping[str, Topic]) -> TopicsView:
        by_id = {topic.topic_id: topic for topic in topics.values()}
        return cls(version, MappingProxyType(dict(topics)), MappingProxyType(by_id))

    def partition(self, topic_partition: TopicPartition) -> PartitionNode | None:
        topic = self.by_name.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def partitions(self) -> Iterator[tuple[Topic, PartitionNode]]:
        for topic in self.by_name.values():
            for partition in topic.partitions:
                yield topic, partition


NO_TOPICS = TopicsView.of(0, {})

"""All partitions that this broker serves, by their topic's name or id, and index.

Requests name topics by name, or by id (Fetch from version 13 on, KIP-516).  The hot path looks a topic up by the bytes
in the request, so it decodes neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, NamedTuple, Protocol
from uuid import UUID

from ottla.broker.partitions.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.replica import Role


class Refusal(NamedTuple):
    """The error that requests for a partition of this topic get, since it cannot be served."""

    topic_id: UUID
    error_code: ErrorCode


class PartitionLookup(Protocol):
    """What a request reads of a `PartitionIndex`, all of it or only some topics (`authorized_topics`)."""

    @property
    def is_guarded(self) -> bool:
        """Whether `allows` may be False."""
        ...

    @property
    def unknown_topic(self) -> ErrorCode: ...

    def allows(self, topic: bytes) -> bool:
        """Whether the request may use this topic's partitions now."""
        ...

    def get(self, topic: bytes, index: int) -> Partition | None: ...

    def absence_error(self, topic: bytes, index: int) -> ErrorCode: ...


class PartitionIndex:
    """Partitions by one key of their topic (name or id, as bytes), dense from index 0.

    A partition that is refused, or that only other brokers hold, leaves a hole.
    """

    __slots__ = ("_counts", "_partitions", "_refused", "_sizes", "unknown_topic")

    is_guarded: ClassVar[bool] = False

    def __init__(self, unknown_topic: ErrorCode) -> None:
        # The error for a topic that is not served.
        self.unknown_topic: Final = unknown_topic
        self._partitions: dict[bytes, list[Partition | None]] = {}
        self._refused: dict[tuple[bytes, int], ErrorCode] = {}
        # How many are served or refused.
        self._counts: dict[bytes, int] = {}
        # How many partitions each topic has, on all brokers.
        self._sizes: dict[bytes, int] = {}

    def allows(self, topic: bytes) -> bool:
        return True

    def get(self, topic: bytes, index: int) -> Partition | None:
        """The partition, or None when this broker does not serve it.  `index` comes from the wire: any int32."""
        partitions = self._partitions.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def absence_error(self, topic: bytes, index: int) -> ErrorCode:
        """Why `get` returned None: it is refused, other brokers hold it, or there is no such partition or topic."""
        refused = self._refused.get((topic, index))
        if refused is not None:
            return refused
        size = self._sizes.get(topic)
        if size is not None:
            is_elsewhere = 0 <= index < size
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic in self._partitions else self.unknown_topic

    def set_size(self, topic: bytes, partitions_count: int | None) -> None:
        """The topic exists with so many partitions; None: it does not."""
        if partitions_count is None:
            self._sizes.pop(topic, None)
        else:
            self._sizes[topic] = partitions_count

    def add(self, topic: bytes, partition: Partition) -> None:
        partitions = self._make_room(topic, partition.index)
        assert partitions[partition.index] is None, f"{partition.topic_partition} is served already"
        partitions[partition.index] = partition
        self._counts[topic] += 1

    def refuse(self, topic: bytes, index: int, error_code: ErrorCode) -> None:
        assert (topic, index) not in self._refused, "remove it first"
        self._make_room(topic, index)
        self._refused[topic, index] = error_code
        self._counts[topic] += 1

    def remove(self, topic: bytes, index: int) -> Partition | None:
        """Remove this partition or its refusal; returns the partition if it was served."""
        removed = self.get(topic, index)
        if removed is not None:
            self._partitions[topic][index] = None
        elif self._refused.pop((topic, index), None) is None:
            return None
        self._counts[topic] -= 1
        if not self._counts[topic]:
            del self._partitions[topic], self._counts[topic]
        return removed

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._partitions.values()):
            yield from (partition for partition in partitions if partition is not None)

    def _make_room(self, topic: bytes, index: int) -> list[Partition | None]:
        partitions = self._partitions.setdefault(topic, [])
        partitions.extend([None] * (index + 1 - len(partitions)))
        self._counts.setdefault(topic, 0)
        return partitions


class PartitionTable:
    """The partitions of this broker in two indexes that always agree."""

    __slots__ = ("_refusals", "by_id", "by_name", "names_by_id", "resignations_count")

    def __init__(self) -> None:
        self.by_name: Final = PartitionIndex(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.by_id: Final = PartitionIndex(ErrorCode.UNKNOWN_TOPIC_ID)
        # Of all topics of the cluster, as bytes.
        self.names_by_id: Final[dict[bytes, bytes]] = {}
        self._refusals: dict[TopicPartition, Refusal] = {}
        # Another value whenever a partition ceased to lead here, with or without a newer view of the topics: a kept
        # answer that names this broker as its leader may be outdated.
        self.resignations_count = 0

    def set_topic(self, name: str, topic_id: UUID, partitions_count: int) -> None:
        """The topic exists: its partitions that are neither served nor refused here are other brokers'."""
        self.by_name.set_size(name.encode(), partitions_count)
        self.by_id.set_size(topic_id.bytes, partitions_count)
        self.names_by_id[topic_id.bytes] = name.encode()

    def forget_topic(self, name: str, topic_id: UUID) -> None:
        """The topic was deleted."""
        self.by_name.set_size(name.encode(), None)
        self.by_id.set_size(topic_id.bytes, None)
        self.names_by_id.pop(topic_id.bytes, None)

    def find(self, topic: str, index: int) -> Partition | None:
        return self.by_name.get(topic.encode(), index)

    def absence_error(self, topic: str, index: int) -> ErrorCode:
        """Why `find` returned None."""
        return self.by_name.absence_error(topic.encode(), index)

    def refusal_of(self, topic_partition: TopicPartition) -> Refusal | None:
        return self._refusals.get(topic_partition)

    def refusals(self) -> Iterable[tuple[TopicPartition, Refusal]]:
        """All partitions that are refused."""
        return self._refusals.items()

    def add(self, partition: Partition) -> None:
        """Serve a partition; it may have been refused until now."""
        if partition.topic_partition in self._refusals:
            self.remove(partition.topic_partition)
        self.by_name.add(partition.name_bytes, partition)
        self.by_id.add(partition.topic_id_bytes, partition)

    def refuse(self, topic_partition: TopicPartition, refusal: Refusal) -> None:
        """Answer requests for a partition of this broker that cannot be served with this error, until it is removed."""
        self.remove(topic_partition)
        self._refusals[topic_partition] = refusal
        self.by_name.refuse(topic_partition.topic.encode(), topic_partition.partition, refusal.error_code)
        self.by_id.refuse(refusal.topic_id.bytes, topic_partition.partition, refusal.error_code)

    def remove(
        self, topic_partition: TopicPartition, error_code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ) -> Partition | None:
        """Cease to serve the partition and retire it, or forget its refusal; None when it was not served.

        Requests that wait for it are answered, produces with `error_code`.
        """
        index = topic_partition.partition
        refusal = self._refusals.pop(topic_partition, None)
        if refusal is not None:
            self.by_id.remove(refusal.topic_id.bytes, index)
        partition = self.by_name.remove(topic_partition.topic.encode(), index)
        if partition is None:
            return None
        self.by_id.remove(partition.topic_id_bytes, index)
        if partition.role is Role.LEADER:
            self.note_resignation()
        partition.retire(error_code)
        return partition

    def note_resignation(self) -> None:
        """A partition ceased to lead here."""
        self.resignations_count += 1

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_name)

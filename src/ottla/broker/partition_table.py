"""All partitions that this broker serves, by topic name and index.

The hot path looks up by the name's bytes as they stand in the request, so it never decodes a name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition


class PartitionTable:
    """Partitions by topic, dense from index 0; a partition that failed to open leaves a hole."""

    __slots__ = ("_by_name_bytes", "_failed")

    def __init__(self) -> None:
        self._by_name_bytes: dict[bytes, list[Partition | None]] = {}
        self._failed: dict[tuple[bytes, int], ErrorCode] = {}

    def absence_error(self, name_bytes: bytes, index: int) -> ErrorCode:
        """Why `get` gave None: the log could not be opened, or there is no such partition."""
        return self._failed.get((name_bytes, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def add_failed(self, topic_partition: TopicPartition, error_code: ErrorCode) -> None:
        """A partition of ours whose log could not be opened: requests get this error."""
        self._failed[topic_partition.topic.encode(), topic_partition.partition] = error_code

    def get(self, name_bytes: bytes, index: int) -> Partition | None:
        """The partition, or None when this broker does not serve it.  `index` comes from the wire: any int32."""
        partitions = self._by_name_bytes.get(name_bytes)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def find(self, topic: str, index: int) -> Partition | None:
        return self.get(topic.encode(), index)

    def add(self, partition: Partition) -> None:
        partitions = self._by_name_bytes.setdefault(partition.name_bytes, [])
        partitions.extend([None] * (partition.index + 1 - len(partitions)))
        assert partitions[partition.index] is None, f"{partition.topic_partition} is served already"
        partitions[partition.index] = partition

    def remove(self, topic_partition: TopicPartition) -> Partition | None:
        name_bytes = topic_partition.topic.encode()
        self._failed.pop((name_bytes, topic_partition.partition), None)
        partition = self.get(name_bytes, topic_partition.partition)
        if partition is None:
            return None
        partition.is_served = False
        partitions = self._by_name_bytes[name_bytes]
        partitions[topic_partition.partition] = None
        if not any(partitions):
            del self._by_name_bytes[name_bytes]
        return partition

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._by_name_bytes.values()):
            yield from (partition for partition in partitions if partition is not None)

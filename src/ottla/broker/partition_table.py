"""All partitions that this broker serves, by their topic's name or id, and index.

Requests name topics by name, or by id (Fetch from version 13 on, KIP-516).  The hot path looks a topic up by the bytes
in the request, so it decodes neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from ottla.broker.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition


class PartitionIndex:
    """Partitions by one key of their topic (name or id, as bytes), dense from index 0.

    A partition whose log could not be opened leaves a hole, and the error that requests for it get.
    """

    __slots__ = ("_failed", "_partitions", "unknown_topic")

    def __init__(self, unknown_topic: ErrorCode) -> None:
        # The error for a topic that is not served.
        self.unknown_topic: Final = unknown_topic
        self._partitions: dict[bytes, list[Partition | None]] = {}
        self._failed: dict[tuple[bytes, int], ErrorCode] = {}

    def get(self, topic: bytes, index: int) -> Partition | None:
        """The partition, or None when this broker does not serve it.  `index` comes from the wire: any int32."""
        partitions = self._partitions.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        return partitions[index]

    def absence_error(self, topic: bytes, index: int) -> ErrorCode:
        """Why `get` returned None: the log could not be opened, or there is no such partition or topic."""
        failed = self._failed.get((topic, index))
        if failed is not None:
            return failed
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic in self._partitions else self.unknown_topic

    def add(self, topic: bytes, partition: Partition) -> None:
        partitions = self._hold(topic, partition.index)
        assert partitions[partition.index] is None, f"{partition.topic_partition} is served already"
        partitions[partition.index] = partition

    def add_failed(self, topic: bytes, index: int, error_code: ErrorCode) -> None:
        self._hold(topic, index)
        self._failed[topic, index] = error_code

    def remove(self, topic: bytes, index: int) -> Partition | None:
        self._failed.pop((topic, index), None)
        partitions = self._partitions.get(topic)
        if partitions is None or not 0 <= index < len(partitions):
            return None
        removed = partitions[index]
        partitions[index] = None
        if not any(partitions) and not any((topic, each) in self._failed for each in range(len(partitions))):
            del self._partitions[topic]
        return removed

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._partitions.values()):
            yield from (partition for partition in partitions if partition is not None)

    def _hold(self, topic: bytes, index: int) -> list[Partition | None]:
        partitions = self._partitions.setdefault(topic, [])
        partitions.extend([None] * (index + 1 - len(partitions)))
        return partitions


class PartitionTable:
    """The partitions of this broker in two indexes that always hold the same."""

    __slots__ = ("_failed_ids", "by_id", "by_name")

    def __init__(self) -> None:
        self.by_name: Final = PartitionIndex(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.by_id: Final = PartitionIndex(ErrorCode.UNKNOWN_TOPIC_ID)
        # The topic's id of each partition whose log could not be opened.
        self._failed_ids: dict[TopicPartition, bytes] = {}

    def find(self, topic: str, index: int) -> Partition | None:
        return self.by_name.get(topic.encode(), index)

    def absence_error(self, topic: str, index: int) -> ErrorCode:
        """Why `find` returned None."""
        return self.by_name.absence_error(topic.encode(), index)

    def add(self, partition: Partition) -> None:
        self.by_name.add(partition.name_bytes, partition)
        self.by_id.add(partition.topic_id_bytes, partition)

    def add_failed(self, topic_partition: TopicPartition, topic_id: UUID, error_code: ErrorCode) -> None:
        """A partition of ours whose log could not be opened: requests get this error."""
        self._failed_ids[topic_partition] = topic_id.bytes
        self.by_name.add_failed(topic_partition.topic.encode(), topic_partition.partition, error_code)
        self.by_id.add_failed(topic_id.bytes, topic_partition.partition, error_code)

    def remove(
        self, topic_partition: TopicPartition, error_code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ) -> Partition | None:
        """Serve the partition no more and retire it, or forget its error; None when it was not served.

        Requests that wait for it are answered, produces with `error_code`.
        """
        index = topic_partition.partition
        failed_id = self._failed_ids.pop(topic_partition, None)
        if failed_id is not None:
            self.by_id.remove(failed_id, index)
        partition = self.by_name.remove(topic_partition.topic.encode(), index)
        if partition is None:
            return None
        self.by_id.remove(partition.topic_id_bytes, index)
        partition.retire(error_code)
        return partition

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_name)

"""The committed offsets of one group: checked values, as they were logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.groups.commands import TopicPartitions
from ottla.groups.offset_records import decode_offset_value
from ottla.groups.replies import CommittedOffset, TopicOffsets


class CommittedOffsets:
    """Cheap in memory: some hundred bytes for an offset, most of them the value itself.

    Topic names come interned from the shard, since many groups commit to the same topics.
    """

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        self.by_topic: Final[dict[str, dict[int, bytes]]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_topic)

    def keep(self, topic: str, partition: int, value: bytes) -> dict[int, bytes]:
        """Returns the topic's values by partition, a dict that stays in use until its last value is removed."""
        partitions = self.by_topic.setdefault(topic, {})
        partitions[partition] = value
        return partitions

    def remove(self, topic: str, partition: int) -> None:
        partitions = self.by_topic.get(topic)
        if partitions is not None and partitions.pop(partition, None) is not None and not partitions:
            del self.by_topic[topic]

    def has(self, topic: str, partition: int) -> bool:
        return partition in self.by_topic.get(topic, ())

    def partitions(self, topic: str) -> Iterable[int]:
        return self.by_topic.get(topic, {}).keys()

    def fetch(self, topics: Sequence[TopicPartitions]) -> Sequence[TopicOffsets]:
        """In the order of the request; offset -1 where nothing is committed."""
        return [TopicOffsets(topic, self._fetch_topic(topic, partitions)) for topic, partitions in topics]

    def fetch_all(self) -> Sequence[TopicOffsets]:
        return [
            TopicOffsets(
                topic, [_committed_offset(partition, value) for partition, value in sorted(partitions.items())]
            )
            for topic, partitions in self.by_topic.items()
        ]

    def _fetch_topic(self, topic: str, partitions: Iterable[int]) -> Sequence[CommittedOffset]:
        known = self.by_topic.get(topic, {})
        return [
            _committed_offset(partition, known[partition]) if partition in known else CommittedOffset(partition)
            for partition in partitions
        ]


def _committed_offset(partition: int, value: bytes) -> CommittedOffset:
    found = decode_offset_value(value)
    return CommittedOffset(partition, found.offset, found.leader_epoch, found.metadata)

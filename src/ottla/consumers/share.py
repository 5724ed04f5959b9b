"""Which stream reads which partitions: the range of Algorithm 1.

Every consumer computes the same share from the same view of the group, so no consumer coordinates the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.model.identifiers import TopicPartition


class StreamId(NamedTuple):
    """Ordered by consumer, then by number; written `consumer-number`, as an owner node has it."""

    consumer_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer_id}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """Raises `ValueError` for what is not the name of a stream."""
        consumer_id, dash, number = text.rpartition("-")
        if not (consumer_id and dash and number.isascii() and number.isdigit()):
            raise ValueError(f"{text!r} is not the name of a stream: it must be CONSUMER-NUMBER")
        return cls(consumer_id, int(number))


class GroupView(NamedTuple):
    """What the share follows from: equal views give equal shares."""

    # Of each registered consumer: its topics, and how many streams it has of each.
    consumers: Mapping[str, Mapping[str, int]]
    # Of the topics that are read; one that does not exist is not in it.
    partitions_counts: Mapping[str, int]

    def streams_of(self, topic: str) -> list[StreamId]:
        return [
            StreamId(consumer_id, number)
            for consumer_id, topics in self.consumers.items()
            for number in range(topics.get(topic, 0))
        ]


def share(partitions_count: int, streams: Collection[StreamId]) -> dict[int, StreamId]:
    """Each partition's stream: a run of partitions for each stream, in their orders; the first ones get one more."""
    shared: dict[int, StreamId] = {}
    if not streams:
        return shared
    smaller, larger_count = divmod(partitions_count, len(streams))
    partition = 0
    for position, stream in enumerate(sorted(streams)):
        for _ in range(smaller + (position < larger_count)):
            shared[partition] = stream
            partition += 1
    return shared


def share_of(view: GroupView, consumer_id: str) -> dict[TopicPartition, StreamId]:
    """What falls to one consumer of the group, of every topic that it reads."""
    return {
        TopicPartition(topic, partition): stream
        for topic in view.consumers.get(consumer_id, ())
        for partition, stream in share(view.partitions_counts.get(topic, 0), view.streams_of(topic)).items()
        if stream.consumer_id == consumer_id
    }

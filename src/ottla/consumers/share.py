"""Which stream reads which partitions: the range of Algorithm 1.

Everybody computes the same from the same view, so nobody has to be asked.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.consumers.group_view import GroupView
from ottla.consumers.stream_id import StreamId
from ottla.model.identifiers import TopicPartition


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

"""A group as one look at the tree shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.consumers.stream_id import StreamId


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

"""The topics as groups see them: names, ids, counts of partitions, all of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID


class TopicImage(NamedTuple):
    name: str
    topic_id: UUID
    partitions_count: int


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """Never changed: a change of topics makes another image."""

    by_name: Mapping[str, TopicImage]
    by_id: Mapping[UUID, TopicImage]

    @classmethod
    def of(cls, topics: Iterable[TopicImage] = ()) -> TopicsImage:
        known = tuple(topics)
        return cls(
            MappingProxyType({topic.name: topic for topic in known}),
            MappingProxyType({topic.topic_id: topic for topic in known}),
        )

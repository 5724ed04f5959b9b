"""The topics as groups see them: names, ids, counts of partitions, all of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID


class TopicImage(NamedTuple):
    name: str
    topic_id: UUID
    partitions_count: int


@dataclass(frozen=True, slots=True, eq=False)
class TopicsImage:
    """Never changed: a change of topics makes another image.  Images are told apart by identity."""

    by_name: Mapping[str, TopicImage]
    by_id: Mapping[UUID, TopicImage]

    @classmethod
    def of(cls, topics: Iterable[TopicImage] = ()) -> TopicsImage:
        known = tuple(topics)
        return cls(
            MappingProxyType({topic.name: topic for topic in known}),
            MappingProxyType({topic.topic_id: topic for topic in known}),
        )


@lru_cache(maxsize=1)
def topics_gone(before: TopicsImage, after: TopicsImage) -> tuple[str, ...]:
    """The names whose topic is not there any more, or is another one under the old name.

    Remembered for one pair of images, since all shards of a broker ask the same question.
    """
    return tuple(
        name
        for name, topic in before.by_name.items()
        if (now := after.by_name.get(name)) is None or now.topic_id != topic.topic_id
    )

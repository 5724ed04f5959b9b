"""The topics as groups see them: names, ids, partition counts, all of one moment."""

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
    """Immutable: a change of topics makes another image.  Images are compared by identity."""

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
def deleted_topics(before: TopicsImage, after: TopicsImage) -> tuple[str, ...]:
    """The names whose topic was deleted, or recreated under the same name.

    Cached for one pair of images, since all shards of a broker need the same one.
    """
    return tuple(
        name
        for name, topic in before.by_name.items()
        if (now := after.by_name.get(name)) is None or now.topic_id != topic.topic_id
    )

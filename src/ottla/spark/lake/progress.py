"""The progress of a lake table in each partition, kept as application transactions of the table.  Pure.

A Delta table keeps one number for each application id.  Ours is the next offset to load, under an id that contains the
topic's id: a topic that was deleted and recreated is another topic, and is loaded from its beginning.  Earlier
versions kept it under the topic's name.  The first load that knows the topic's id continues from there and sets the
number under the name to `KEPT_BY_TOPIC_ID`, so that no later topic of that name continues from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition, uuid_to_text
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.errors import LakeError
from ottla.spark.options.offset_spec import Offsets

KEPT_BY_TOPIC_ID: Final = -1


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """The application ids of one cluster's partitions.  `topic_ids` holds all zeros where the cluster has none."""

    cluster_id: str
    topic_ids: Mapping[str, UUID]

    def by_name(self, place: TopicPartition) -> str:
        return f"ottla/{self.cluster_id}/{place.topic}/{place.partition}"

    def by_id(self, place: TopicPartition) -> str | None:
        """None where the cluster has no topic ids (Apache Kafka before 2.8).  No topic's name contains a colon."""
        topic_id = self.topic_ids[place.topic]
        if topic_id == ZERO_UUID:
            return None
        return f"ottla/{self.cluster_id}/{place.topic}:{uuid_to_text(topic_id)}/{place.partition}"


@dataclass(frozen=True, slots=True)
class Progress:
    """The table's progress in the partitions that a load reads.

    `next_offsets`: where to continue.  `found_by_name`: those of them whose progress is under the topic's name.
    `recreated_topics`: the table has records of an earlier topic of this name, and none of the current one.
    `numbers`: what the table had for each application id that was asked for.
    """

    next_offsets: Offsets
    found_by_name: frozenset[TopicPartition]
    recreated_topics: frozenset[str]
    numbers: Mapping[str, int | None]

    @property
    def known_topics(self) -> frozenset[str]:
        """Of whose name the table has a number: their partitions that have none came later, and are loaded whole."""
        return self.recreated_topics | {place.topic for place in self.next_offsets}


def progress_of(places: Iterable[TopicPartition], keys: TopicKeys, version_of: Callable[[str], int | None]) -> Progress:
    """`version_of` is the table's number for an application id, None where it has none.

    Raises `LakeError` when the table knows a topic by its id and the cluster gives none.
    """
    next_offsets: dict[TopicPartition, int] = {}
    found_by_name: set[TopicPartition] = set()
    known_topics: set[str] = set()
    earlier_topics: set[str] = set()
    numbers: dict[str, int | None] = {}

    def number_of(app_id: str) -> int | None:
        numbers[app_id] = version_of(app_id)
        return numbers[app_id]

    for place in places:
        id_key = keys.by_id(place)
        by_id = None if id_key is None else number_of(id_key)
        by_name = number_of(keys.by_name(place))
        if by_id is not None:
            next_offsets[place] = by_id
            known_topics.add(place.topic)
        elif by_name == KEPT_BY_TOPIC_ID:
            if id_key is None:
                raise LakeError(
                    f"the table knows the topic {place.topic} by its id, and the cluster gives no topic ids",
                    hint="load from the cluster as it was before, or into a new table",
                )
            earlier_topics.add(place.topic)
        elif by_name is not None:
            next_offsets[place] = by_name
            known_topics.add(place.topic)
            found_by_name.add(place)
    return Progress(next_offsets, frozenset(found_by_name), frozenset(earlier_topics - known_topics), numbers)


def versions_to_commit(progress: Progress, end: Offsets, keys: TopicKeys) -> dict[str, int]:
    """The number for each application id that a load up to `end` (exclusive) changes.

    Every partition has a number from the first load that saw it, also where nothing was loaded: what the log deletes
    from then on is missed, and `start` does not count for it again.
    """
    versions: dict[str, int] = {}
    for place, offset in end.items():
        id_key, name_key = keys.by_id(place), keys.by_name(place)
        # Also backwards: `failOnDataLoss=false` continues at the end of a log that lost records.
        is_moved = offset != progress.next_offsets.get(place)
        if id_key is None:
            if is_moved:
                versions[name_key] = offset
        elif is_moved or place in progress.found_by_name:
            versions |= {id_key: offset, name_key: KEPT_BY_TOPIC_ID}
    return versions

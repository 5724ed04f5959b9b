"""The topics that the members of a group read, and the hash that detects a change of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from uuid import UUID

from ottla.groups.consumer.member import MemberMetadata
from ottla.groups.subscription_pattern import SubscriptionPatterns
from ottla.groups.topics_image import TopicsImage
from ottla.model.errors import RequestError

NO_TOPICS_HASH = 0


def hash_topics(names: Iterable[str], topics: TopicsImage) -> int:
    """64 bits that change when a topic of `names` is created, deleted, recreated, or gets more partitions.

    Names are sorted, and the fields cannot be confused: an id has 16 bytes and a count 4.  Stored with the group's
    epoch, so it is the same in every process.  (Kafka 4.1 hashes with XXH3; after a migration between the two each
    group is rebalanced once.)
    """
    existing = sorted(name for name in names if name in topics.by_name)
    if not existing:
        return NO_TOPICS_HASH
    digest = blake2b(digest_size=8)
    for name in existing:
        topic = topics.by_name[name]
        digest.update(topic.topic_id.bytes + topic.partitions_count.to_bytes(4) + name.encode() + b"\0")
    return int.from_bytes(digest.digest(), signed=True)


def resolve_patterns(
    wanted: Collection[str], patterns: SubscriptionPatterns, topics: TopicsImage
) -> dict[str, frozenset[str]]:
    """The topics of each pattern.  One that RE2 no longer accepts (it was checked when it arrived) matches none."""
    resolved = {}
    for pattern in wanted:
        try:
            resolved[pattern] = patterns.matching(pattern, topics)
        except RequestError:
            resolved[pattern] = frozenset()
    return resolved


class TopicLookup:
    """The ids of the existing topics that a member subscribes to; equal subscriptions are resolved once."""

    def __init__(self, resolved: Mapping[str, frozenset[str]], topics: TopicsImage) -> None:
        self._resolved = resolved
        self._topics = topics
        self._found: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}

    def topic_ids(self, metadata: MemberMetadata) -> frozenset[UUID]:
        subscription = (metadata.topic_names, metadata.topic_pattern)
        found = self._found.get(subscription)
        if found is None:
            by_name = self._topics.by_name
            names = frozenset(metadata.topic_names) | self._resolved.get(metadata.topic_pattern or "", frozenset())
            found = frozenset(by_name[name].topic_id for name in names if name in by_name)
            self._found[subscription] = found
        return found

    def partitions_counts(self, topic_ids: Iterable[UUID]) -> dict[UUID, int]:
        """In order of topic names, so that an assignment is easy to read."""
        found = sorted({self._topics.by_id[topic_id] for topic_id in topic_ids})
        return {topic.topic_id: topic.partitions_count for topic in found}

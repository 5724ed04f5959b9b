"""Topics as a member of a group knows them: which a filter selects, their ids, how many partitions they have."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.kafka_group.options import KafkaGroupOptions
from ottla.client.membership.kafka_group.protocol import Ask, Purpose
from ottla.consumers.rebalance_pace import NEVER_MS, RebalancePace, Retries
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# v0 cannot ask for no topic at all.
_VERSION_MIN: Final = 1
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class GroupTopics:
    """Read at the start, and again when something is missing, or by time where the coordinator does not watch them."""

    __slots__ = (
        "_asked",
        "_every_ms",
        "_is_missing",
        "_is_watched",
        "_others",
        "_refresh_due_ms",
        "_retries",
        "_subscription",
        "_timeout_ms",
        "_was_asked",
        "ids",
        "is_known",
        "partitions_counts",
        "streams_counts",
    )

    def __init__(self, subscription: Subscription, options: KafkaGroupOptions, chance: random.Random) -> None:
        self._subscription = subscription
        self._every_ms: Final = options.topics_refresh_ms
        self._timeout_ms: Final = options.request_timeout_ms
        pace = RebalancePace(retry_ms=options.retry_backoff_ms, retry_max_ms=options.topics_refresh_ms)
        self._retries: Final = Retries(pace, chance)
        # Topics of other members, for the leader of a classic group.
        self._others: frozenset[str] = frozenset()
        # What the last request was for.
        self._asked: tuple[Subscription, frozenset[str]] | None = None
        self._is_watched = False
        self._is_missing = self._was_asked = False
        self._refresh_due_ms = 0
        # Whether an answer has covered everything that is asked for now.
        self.is_known = False
        self.ids: Mapping[str, UUID] = {}
        self.partitions_counts: Mapping[str, int] = {}
        # The topics that are read here, each with its count of streams.
        self.streams_counts: Mapping[str, int] = {}

    def subscribe(self, subscription: Subscription) -> None:
        """Read this from now on; `is_known` becomes true when an answer has covered it."""
        self._subscription = subscription
        self.is_known = False
        self._refresh_due_ms = 0

    def watch(self, *, is_watched: bool) -> None:
        """Whether new partitions of the topics must be noticed here: the coordinator of a classic group does not."""
        self._is_watched = is_watched

    def include(self, topics: Iterable[str]) -> None:
        """Other topics, too, and only now: `is_known` becomes true when an answer has covered them."""
        self._others = frozenset(topics)
        self.is_known = False
        self._refresh_due_ms = 0

    def on_missing(self, now_ms: int) -> bool:
        """The group has named a topic that is not known here: it is asked for soon, then after longer and longer.

        Whether an answer may still show that a known topic was recreated.
        """
        if not self._is_missing:
            self._is_missing, self._was_asked = True, False
        if not self._retries.is_waiting:
            self._retries.wait(now_ms)
        return not self._was_asked

    @property
    def due_ms(self) -> int:
        is_by_time = self._subscription.filter is not None or self._is_watched or not self.is_known
        return min(self._refresh_due_ms if is_by_time else NEVER_MS, self._retries.due_ms)

    def ask(self) -> Ask:
        """All topics for a filter, else the topics that are read."""
        is_all = self._subscription.filter is not None
        names = None if is_all else sorted(self._subscription.topics.keys() | self._others)
        self._asked = self._subscription, self._others
        self._retries.on_due()

        def message(version: int) -> MetadataRequest:
            topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
            return MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)

        return Ask(Purpose.TOPICS, ApiKey.METADATA, message, MetadataResponse, self._timeout_ms, _VERSION_MIN)

    def on_answer(self, answer: MetadataResponse, now_ms: int) -> None:
        counts: dict[str, int] = {}
        ids: dict[str, UUID] = {}
        for topic in answer.topics:
            if topic.name is None or topic.error_code in _GONE:
                continue
            if topic.error_code:
                # It is there, and cannot be described now.
                if topic.name in self.partitions_counts:
                    counts[topic.name] = self.partitions_counts[topic.name]
                    ids[topic.name] = self.ids[topic.name]
                continue
            counts[topic.name] = len(topic.partitions)
            ids[topic.name] = topic.topic_id
        self.partitions_counts, self.ids = counts, ids
        self.streams_counts = self._subscription.streams_counts(counts)
        self._was_asked = True
        self.is_known = self._asked == (self._subscription, self._others)
        self._refresh_due_ms = now_ms + self._every_ms if self.is_known else now_ms

    def on_failed(self, now_ms: int) -> None:
        """No answer came: the member waits before it asks anything again."""
        self._refresh_due_ms = now_ms
        if self.is_known:
            self._retries.wait(now_ms)

    def on_found(self) -> None:
        """Everything that the group has named is known."""
        self._is_missing = False
        self._retries.reset()

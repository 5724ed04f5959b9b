"""How fast this broker fetches the replicas that an operator throttles: a token bucket.  Pure; time is passed in.

Kafka's settings (KIP-73): a rate of the broker, and topics' lists of `PARTITION:BROKER`, or `*` for all.  Replicas in
sync are never throttled: an acknowledgement may wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model.dynamic_broker_settings import FOLLOWER_THROTTLED_RATE
from ottla.model.errors import ConfigError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.topic_settings import FOLLOWER_THROTTLED_REPLICAS

# Another rate, or none, is in force after this time at the latest.
DELAY_MS_MAX: Final = 1_000

_ALL: Final = None
_Indexes = frozenset[int] | None


class ReplicationThrottle:
    """What is fetched may pass the rate by one answer; the next ones wait until the average is kept again."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        # Bytes in a second; None when nothing is throttled.
        self._rate_bytes: int | None = None
        self._topics: Mapping[str, _Indexes] = {}
        # Negative: what was fetched too much.
        self._room_bytes = 0.0
        self._filled_ms = 0

    def configure(self, configs: ConfigsView, now_ms: int) -> None:
        """The settings changed, perhaps."""
        before = self._rate_bytes
        self._rate_bytes = self._rate_of(configs)
        self._topics = {}
        if self._rate_bytes is None:
            return
        self._topics = {
            entity.name: indexes
            for entity, settings in configs.settings.items()
            if entity.kind == "topics" and (text := settings.get(FOLLOWER_THROTTLED_REPLICAS.name))
            if (indexes := self._indexes_of(text)) is _ALL or indexes
        }
        if before is None:
            self._room_bytes, self._filled_ms = 0.0, now_ms

    @property
    def is_on(self) -> bool:
        return bool(self._topics)

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker's replica of the partition is throttled."""
        if not self._topics or topic_partition.topic not in self._topics:
            return False
        indexes = self._topics[topic_partition.topic]
        return indexes is _ALL or topic_partition.partition in indexes

    def delay_ms(self, now_ms: int) -> int:
        """How long to wait before the next fetch; 0: not at all."""
        rate_bytes = self._rate_bytes
        if rate_bytes is None:
            return 0
        rate_bytes = max(rate_bytes, 1)
        # What was not used in the last second is not made up for.
        room_bytes = self._room_bytes + (now_ms - self._filled_ms) * rate_bytes / 1_000
        self._room_bytes, self._filled_ms = min(room_bytes, float(rate_bytes)), now_ms
        if self._room_bytes >= 0:
            return 0
        return min(int(-self._room_bytes * 1_000 / rate_bytes) + 1, DELAY_MS_MAX)

    def fetch_bytes_max(self, size_bytes: int) -> int:
        """The most bytes to fetch of a partition at once: what a second allows."""
        return size_bytes if self._rate_bytes is None else max(min(size_bytes, self._rate_bytes), 1)

    def take(self, size_bytes: int) -> None:
        """So many bytes of throttled replicas were fetched."""
        self._room_bytes -= size_bytes

    def _rate_of(self, configs: ConfigsView) -> int | None:
        for entity in (ConfigEntity.broker(self._node_id), ConfigEntity.broker(None)):
            text = configs.of(entity).get(FOLLOWER_THROTTLED_RATE.name)
            if text is not None:
                return FOLLOWER_THROTTLED_RATE.parse(text)
        return None

    def _indexes_of(self, text: str) -> _Indexes:
        """The partitions of which this broker's replica is in a topic's list; what is no pair throttles nothing."""
        try:
            entries = FOLLOWER_THROTTLED_REPLICAS.parse(text)
        except ConfigError:
            return frozenset()
        if "*" in entries:
            return _ALL
        pairs = [entry.partition(":") for entry in entries]
        return frozenset(
            int(index) for index, _, node in pairs if node == str(self._node_id) and index.isascii() and index.isdigit()
        )

"""Reads a topic repeatedly, for tests that wait for records."""

from __future__ import annotations

import time
from itertools import chain
from types import TracebackType
from typing import Any, Final, Self

from ottla.client.fetching.messages import Message
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import UnknownTopic
from ottla.client.wire.options import ClientOptions
from ottla.model.identifiers import TopicPartition
from ottla.testing.record import Deserializer, deserialized
from ottla.testing.topic import Topic

CLIENT_ID: Final = "ottla-testing"
# A read that has started must end, also for callers that do not wait.
CALL_MS_MIN: Final = 5_000
_POLL_S: Final = 0.01


def bootstrap_of(topic: str, bootstrap: str | None) -> str:
    """Where a topic is.  Raises `TypeError` when a plain name comes without it."""
    if bootstrap is not None:
        return bootstrap
    if isinstance(topic, Topic):
        return topic.bootstrap
    raise TypeError(f"which broker has {topic!r}? Use a topic of the namespace, or bootstrap=broker.bootstrap")


class TopicReader:
    """All records of a topic; one with partitions that were added since is read whole, too."""

    def __init__(
        self,
        topic: str,
        bootstrap: str,
        timeout_ms: int,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        self._topic = str(topic)
        self._timeout_ms = timeout_ms
        # `wait_for` requests a missing topic again.
        options = ClientOptions(CLIENT_ID, call_timeout_ms=max(timeout_ms, CALL_MS_MIN), unknown_topic_wait_ms=0)
        self._cluster = Cluster(bootstrap, options)
        self._log = TopicLog(self._cluster, self._topic)
        self._key = key
        self._value = value
        self._messages: dict[TopicPartition, list[Message[Any, Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cluster.close()

    @property
    def messages(self) -> list[Message[Any, Any]]:
        """The records read so far, by partition and offset."""
        return list(chain.from_iterable(self._messages[partition] for partition in sorted(self._messages)))

    def wait_for(self, count: int) -> None:
        """Read all that there is, again until it is `count` records or time is over.  Raises `UnknownTopic`."""
        deadline = self._cluster.retrying.deadline(self._timeout_ms)
        while True:
            try:
                self.read()
            except UnknownTopic:
                if deadline.has_passed:
                    raise
            else:
                if sum(map(len, self._messages.values())) >= count or deadline.has_passed:
                    return
            time.sleep(_POLL_S)

    def read(self) -> None:
        """Read up to the ends of the partitions as they are now."""
        self._cluster.forget([self._topic])
        for message in self._log.read_in(self._log.ranges()):
            partition = TopicPartition(message.topic, message.partition)
            self._messages.setdefault(partition, []).append(self._deserialized(message))

    def _deserialized(self, message: Message) -> Message[Any, Any]:
        key, value = deserialized(self._key, message.key), deserialized(self._value, message.value)
        return Message(
            message.topic, message.partition, message.offset, message.timestamp_ms, key, value, message.headers
        )

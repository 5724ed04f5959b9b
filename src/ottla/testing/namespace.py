"""Topics and groups of one test, which are gone after it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from ottla.client.admin.admin import BROKER_DEFAULT, Admin
from ottla.client.groups.groups import GroupAdmin, UnknownGroup
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.testing.topic import CLIENT_ID, Topic

# A topic's name has 249 characters at most: this leaves room for those of the test.
PREFIX_CHARS_MAX: Final = 80
CALL_TIMEOUT_MS: Final = 30_000
_SUFFIX_BYTES: Final = 4
_UNUSABLE: Final = re.compile(r"[^a-zA-Z0-9._-]+")
_GONE: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Namespace:
    """Names that begin with a prefix of its own; closing it deletes their topics and groups.

        with Namespace("localhost:9092") as namespace:
            orders = namespace.topic("orders", partitions=3)
            consumer = Consumer({"bootstrap.servers": orders.bootstrap, "group.id": namespace.group("billing")})

    `prefix` is what people see in the names, a test's name for example; some random characters follow it.
    """

    def __init__(self, bootstrap: str, prefix: str = "test") -> None:
        self.bootstrap: Final = bootstrap
        readable = _UNUSABLE.sub("-", prefix).strip("-.")[:PREFIX_CHARS_MAX] or "test"
        self.prefix: Final = f"{readable}-{secrets.token_hex(_SUFFIX_BYTES)}."
        self._exact: set[str] = set()
        self._groups: set[str] = set()
        self._cluster: Cluster | None = None

    def topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> Topic:
        """Create a topic: `name` after the prefix, or exactly `name` for programs that name their topics themselves.

        `configs` are the topic's settings (`{"cleanup.policy": "compact"}`).  `replicas`: without it the broker's
        `default.replication.factor`.  Raises
        `ottla.client.wire.errors.BrokerRefused`, also when a topic of exactly this name is there.
        """
        topic = self.name(name) if not exact else Topic(name, self.bootstrap)
        Admin(self._connected()).create_topic(topic, partitions, replicas, configs)
        if exact:
            self._exact.add(name)
        return topic

    def name(self, name: str) -> Topic:
        """The name of a topic that the tested program creates."""
        return Topic(self.prefix + name, self.bootstrap)

    def group(self, name: str) -> str:
        """The id of a consumer group."""
        group = self.prefix + name
        self._groups.add(group)
        return group

    def topics(self) -> list[Topic]:
        """The topics that there are now, by name."""
        found = (topic.name for topic in Admin(self._connected()).list_topics())
        return [Topic(name, self.bootstrap) for name in found if name.startswith(self.prefix) or name in self._exact]

    def close(self) -> None:
        """Delete the topics, and the groups: one whose consumer is not closed stays until the broker ends.

        Raises `ottla.client.wire.errors.BrokerRefused` when a topic cannot be deleted.
        """
        try:
            self._delete_topics()
            self._delete_groups()
        finally:
            self._exact.clear()
            self._groups.clear()
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.bootstrap, ClientOptions(CLIENT_ID, call_timeout_ms=CALL_TIMEOUT_MS))
        return self._cluster

    def _delete_topics(self) -> None:
        topics = self.topics()
        refusals = Admin(self._connected()).delete_topics(topics) if topics else {}
        for refusal in refusals.values():
            # The test may delete some itself.
            if refusal is not None and refusal.code is not _GONE:
                raise refusal

    def _delete_groups(self) -> None:
        groups = GroupAdmin(self._connected())
        for group in self._groups:
            try:
                groups.delete(group)
            except UnknownGroup:
                pass
            except BrokerRefused as refusal:
                # Its consumer has not left: the broker's end is the group's.
                if refusal.code is not ErrorCode.NON_EMPTY_GROUP:
                    raise

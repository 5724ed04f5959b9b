"""The topic of counts: created, written and read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final

from ottla.audit.count import AuditMessage, Count, Report, from_json, key_bytes, to_json
from ottla.audit.snapshot import AuditSnapshot
from ottla.client.topic_log import NotAppended, TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.security_argument import given_security
from ottla.client.wire.security.settings import ClientSecurity
from ottla.model.errors import WireError
from ottla.model.limits import DAY_MS
from ottla.model.own_names import AUDIT_TOPIC
from ottla.observe.events import fields

log = logging.getLogger(__name__)

PARTITIONS_COUNT: Final = 4
REPLICAS_COUNT: Final = 3
# Compaction removes replaced messages, and retention windows that are too old for a comparison.
RETENTION_MS: Final = 30 * DAY_MS
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(RETENTION_MS)}


class CountsNotSent(ClientError):
    """Counts were not stored; the counter still has them."""

    hint = "they are sent again with the next ones"


def ensure_topic(cluster: Cluster, name: str = AUDIT_TOPIC) -> None:
    """Create the topic unless it exists: with three replicas, or as many as there are brokers."""
    TopicLog(cluster, name).ensure(PARTITIONS_COUNT, REPLICAS_COUNT, TOPIC_CONFIGS)


def publish(
    cluster: Cluster, messages: Iterable[AuditMessage], name: str = AUDIT_TOPIC, *, timeout_ms: float | None = None
) -> None:
    """Store the messages on all in-sync replicas.  Raises ClientError; then any part of them may be stored.

    Reports are sent when the counts are stored, since a report vouches for them.  To send them again is harmless.
    """
    counts: list[tuple[bytes, bytes]] = []
    reports: list[tuple[bytes, bytes]] = []
    for message in messages:
        (counts if isinstance(message, Count) else reports).append((key_bytes(message), to_json(message)))
    for rows in (counts, reports):
        if rows:
            store(cluster, rows, name, timeout_ms=timeout_ms)


def store(cluster: Cluster, rows: Iterable[tuple[bytes, bytes]], name: str, *, timeout_ms: float | None = None) -> None:
    """The same for keys and values as they are."""
    ensure_topic(cluster, name)
    try:
        TopicLog(cluster, name).append(rows, timeout_ms=timeout_ms)
    except NotAppended as error:
        raise CountsNotSent(f"counts were not stored in {name}: {error}") from error


class AuditReader:
    """Reads the topic's messages into a snapshot, each once; `update` continues where the last one ended."""

    def __init__(self, cluster: Cluster, name: str = AUDIT_TOPIC) -> None:
        self._log = TopicLog(cluster, name)
        self._name = name
        self.snapshot = AuditSnapshot()
        # The ends of the partitions are not from one moment: the counts that a report vouches for may be above the end
        # of a partition that was looked up before.  A read that starts after the report was seen finds them.
        self._reports: list[Report] = []
        # The messages so far that no counter has written.
        self.refused_count = 0

    def update(self) -> AuditSnapshot:
        """Read up to the topic's end as it is now; nothing when there is no such topic."""
        self._read()
        reports, self._reports = self._reports, []
        try:
            self._read()
        except ClientError:
            self._reports = reports + self._reports
            raise
        for report in reports:
            self.snapshot.apply(report)
        return self.snapshot

    def _read(self) -> None:
        for stored in self._log.read():
            try:
                message = from_json(stored.value or b"")
            except WireError as error:
                self.refused_count += 1
                log.debug("audit.message_refused", extra=fields(topic=self._name, error=str(error)))
                continue
            if isinstance(message, Report):
                self._reports.append(message)
            else:
                self.snapshot.apply(message)


class AuditTopic:
    """The topic through its own connection.

    with AuditTopic("localhost:9092") as topic:
        lines = compare(topic.read().counts, window_ms=3_600_000)

    `security`: settings by Kafka's names, or a `ClientSecurity`.  Raises ConfigError for what they cannot be.
    """

    def __init__(
        self,
        bootstrap: str,
        name: str = AUDIT_TOPIC,
        *,
        security: ClientSecurity | Mapping[str, object] | None = None,
    ) -> None:
        self._cluster = Cluster(bootstrap, ClientOptions(security=given_security(security)))
        self._name = name
        self._reader = AuditReader(self._cluster, name)

    def __enter__(self) -> AuditTopic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._cluster.close()

    def read(self) -> AuditSnapshot:
        """All counts that are stored by now."""
        return self._reader.update()

    def publish(self, messages: Iterable[AuditMessage], *, timeout_ms: float | None = None) -> None:
        """Store counts.  Raises ClientError; to send them again is harmless."""
        publish(self._cluster, messages, self._name, timeout_ms=timeout_ms)

"""The topic of counts: made, written and read through the client core."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final

from ottla.audit.book import AuditBook
from ottla.audit.count import AuditMessage, Count, Report, from_json, key_bytes, to_json
from ottla.client.admin.admin import Admin
from ottla.client.fetching.fetcher import Fetcher
from ottla.client.fetching.offsets import log_ranges
from ottla.client.producing.acks import Delivery
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError, UnknownTopic
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import DAY_MS
from ottla.model.own_names import AUDIT_TOPIC
from ottla.observe.events import fields
from ottla.records.record_run import read_runs

log = logging.getLogger(__name__)

PARTITIONS_COUNT: Final = 4
REPLICAS_COUNT: Final = 3
# Replaced messages go by compaction, windows that nobody asks for any more by their age.
RETENTION_MS: Final = 30 * DAY_MS
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact,delete", "retention.ms": str(RETENTION_MS)}


class CountsNotSent(ClientError):
    """Counts were not stored; the counter still has them."""

    hint = "they are sent again with the next ones"


def ensure_topic(cluster: Cluster, name: str = AUDIT_TOPIC) -> None:
    """Create the topic unless it is there: with three replicas, or as many as there are brokers."""
    Admin(cluster).ensure_topic(name, PARTITIONS_COUNT, REPLICAS_COUNT, TOPIC_CONFIGS)


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
    now_ms = cluster.clock.now_ms()
    with RecordProducer(cluster) as producer:
        results = []
        for key, value in rows:
            producer.add(name, key, value, timestamp_ms=now_ms)
            results += producer.poll()
        results += producer.flush(timeout_ms)
        failed = [each for each in results if each.delivery is not Delivery.ACKNOWLEDGED]
        if failed or producer.pending_count:
            reason = failed[0].error if failed else "no acknowledgement came in time"
            raise CountsNotSent(f"counts were not stored in {name}: {reason}")


def read_values(cluster: Cluster, name: str, positions: dict[TopicPartition, int]) -> Iterator[bytes | None]:
    """The values in a topic from `positions` on, up to its end as it is now; then the positions are moved there.

    Nothing where there is no such topic.
    """
    try:
        partitions = [TopicPartition(name, each) for each in cluster.partitions(name)]
    except UnknownTopic:
        return
    ranges = log_ranges(cluster, partitions)
    ends = {partition: offsets.stop for partition, offsets in ranges.items()}
    starts = {
        partition: max(positions.get(partition, 0), offsets.start)
        for partition, offsets in ranges.items()
        if positions.get(partition, 0) < offsets.stop and offsets.start < offsets.stop
    }
    with Fetcher(cluster, starts, ends) as fetcher:
        for fetched in fetcher:
            for batch in fetched.batches():
                for run in read_runs(batch):
                    yield from run.from_offset(fetched.fetch_offset).values
    positions |= ends


class AuditReader:
    """Reads the topic's messages into a book, each once; `update` goes on where the last one ended."""

    def __init__(self, cluster: Cluster, name: str = AUDIT_TOPIC) -> None:
        self._cluster = cluster
        self._name = name
        self._positions: dict[TopicPartition, int] = {}
        self.book = AuditBook()
        # Partitions are not read at one moment: the counts that a report vouches for may lie in one whose end was
        # asked for just before.  They are surely there at a look that begins when the report was seen.
        self._reports: list[Report] = []
        # Messages that were not ours, so far.
        self.refused_count = 0

    def update(self) -> AuditBook:
        """Read up to the topic's end as it is now; nothing when there is no such topic."""
        self._read()
        reports, self._reports = self._reports, []
        try:
            self._read()
        except ClientError:
            self._reports = reports + self._reports
            raise
        for report in reports:
            self.book.apply(report)
        return self.book

    def _read(self) -> None:
        for value in read_values(self._cluster, self._name, self._positions):
            try:
                message = from_json(value or b"")
            except WireError as error:
                self.refused_count += 1
                log.debug("audit.message_refused", extra=fields(topic=self._name, error=str(error)))
                continue
            if isinstance(message, Report):
                self._reports.append(message)
            else:
                self.book.apply(message)


class AuditTopic:
    """The topic through a connection of its own.

    with AuditTopic("localhost:9092") as topic:
        lines = compare(topic.read().counts, window_ms=3_600_000)
    """

    def __init__(self, bootstrap: str, name: str = AUDIT_TOPIC) -> None:
        self._cluster = Cluster(bootstrap)
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

    def read(self) -> AuditBook:
        """What all counters have told by now."""
        return self._reader.update()

    def publish(self, messages: Iterable[AuditMessage], *, timeout_ms: float | None = None) -> None:
        """Store counts.  Raises ClientError; to send them again is harmless."""
        publish(self._cluster, messages, self._name, timeout_ms=timeout_ms)

"""The topic with a query's deliveries: one partition, of which the last record counts, written in transactions only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.client.fetching.fetch_requests import AbortedBatches, fetch_raw
from ottla.client.fetching.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets
from ottla.client.topic_log import TopicLog
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.retrying import Deadline
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.records.header import read_header
from ottla.records.record import decode_batch
from ottla.spark.sink.deliveries import Delivery, from_json, to_json

_CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": "16777216"}
_REPLICAS_MAX: Final = 3
# All records have one key: compaction leaves the last.
_KEY: Final = b"last"
# A delivery and its marker are two offsets; compaction leaves gaps, so a search goes back in growing steps.
_SEARCH_OFFSETS: Final = 32
_SEARCH_GROWTH: Final = 16


class DeliveriesUndecided(ClientError):
    """A transaction on the topic is open, so its last delivery is not known yet."""

    is_retriable = True
    hint = (
        "only the query writes to the topic of its deliveries; `ottla transaction find-hanging` shows open transactions"
    )


class DeliveryTopic:
    """Read only after the query's transactional id was taken over."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.partition: Final = TopicPartition(name, 0)
        self._cluster = cluster

    def ensure(self) -> None:
        """Create the topic unless it is there.  Raises ClientError."""
        TopicLog(self._cluster, self.partition.topic).ensure(1, _REPLICAS_MAX, _CONFIGS)

    def last(self) -> Delivery | None:
        """Raises ClientError, NotDelivered."""
        retrying = self._cluster.retrying
        log = retrying.run("the last delivery", self._decided, retrying.deadline())
        end, step = log.stop, _SEARCH_OFFSETS
        while log.start < end:
            start = max(log.start, end - step)
            found = list(self._between(start, end))
            if found:
                return found[-1]
            end, step = start, step * _SEARCH_GROWTH
        return None

    def batch(self, delivery: Delivery) -> bytearray:
        """For a transaction."""
        builder = BatchBuilder()
        builder.append(self._cluster.clock.now_ms(), _KEY, to_json(delivery))
        return builder.build(is_transactional=True)

    def _decided(self, deadline: Deadline) -> range:
        """The topic's offsets, of which none is in an open transaction."""
        timeout_ms = deadline.remaining_ms
        start = list_offsets(self._cluster, {self.partition: EARLIEST}, timeout_ms=timeout_ms)[self.partition].offset
        stable, end = (
            list_offsets(self._cluster, {self.partition: LATEST}, isolation=isolation, timeout_ms=timeout_ms)[
                self.partition
            ].offset
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
        if stable < end:
            raise DeliveriesUndecided(f"{self.partition}: offsets {stable} to {end - 1} are in an open transaction")
        return range(start, end)

    def _between(self, start: int, end: int) -> Iterator[Delivery]:
        """The committed ones at these offsets."""
        place = start
        while place < end:
            fetched = fetch_raw(
                self._cluster, *self.partition, place, isolation=IsolationLevel.READ_COMMITTED, check_crc=True
            )
            aborted = AbortedBatches(fetched.aborted_transactions)
            for batch in fetched.batches():
                header = read_header(batch)
                if aborted.is_aborted(header, batch) or header.is_control:
                    continue
                for record in decode_batch(batch):
                    if start <= record.offset < end:
                        yield from_json(record.value)
            if fetched.next_offset == place:
                # Compaction may have removed everything up to the end.
                if fetched.last_stable_offset >= end:
                    return
                raise DeliveriesUndecided(f"{self.partition}: offset {place} cannot be read yet")
            place = fetched.next_offset

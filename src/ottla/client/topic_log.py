"""A topic as the log of a program: created, appended to with acknowledgement, and read up to its end again and again.

The audit's counts, lost offsets, the schema registry, the claims of replays and the progress of a mirror
are such logs; each program applies the records to its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.client.fetching.messages import Message, messages_between
from ottla.client.fetching.offsets import IsolationLevel, log_ranges
from ottla.client.producing.produce_requests import BatchResult, DeliveryStatus
from ottla.client.producing.record_producer import RecordProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import CallTimedOut, ClientError, UnknownTopic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition
from ottla.records.record import Headers

_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})


class NotAppended(ClientError):
    """Some of the records were not acknowledged; any part of them may be stored."""

    def __init__(self, reason: OttlaError) -> None:
        super().__init__(str(reason), hint=reason.hint)
        self.reason = reason
        self.__cause__ = reason


class TopicLog:
    """`read` continues where the former one ended: at `positions`.  For one thread at a time.

    `isolation`: with READ_COMMITTED a read waits for the ends of open transactions, so it knows the outcome of each.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        options: ProducerOptions | None = None,
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self.positions: Final[dict[TopicPartition, int]] = {}
        self._cluster = cluster
        self._topic = topic
        self._options = options
        self._isolation = isolation

    def ensure(self, partitions_count: int, replicas_max: int, configs: Mapping[str, str]) -> None:
        """Create the topic unless it exists, with `replicas_max` replicas, or as many as there are brokers."""
        # Not above: each of Spark's Python processes imports this module, and few of them create the topic.
        from ottla.client.admin.admin import Admin

        Admin(self._cluster).ensure_topic(self._topic, partitions_count, replicas_max, configs)

    def exists(self) -> bool:
        """By one request, without waiting for a topic that was just created."""
        found = self._cluster.refresh([self._topic])
        return bool(found) and found[0].error_code not in _MISSING

    def ranges(self) -> dict[TopicPartition, range]:
        """The readable offsets of each partition now.  Raises UnknownTopic."""
        partitions = [TopicPartition(self._topic, number) for number in self._cluster.partitions(self._topic)]
        return log_ranges(self._cluster, partitions)

    def read(self) -> Iterator[Message]:
        """The messages up to the end of the topic as it is now; none where there is no such topic."""
        try:
            ranges = self.ranges()
        except UnknownTopic:
            return
        yield from self.read_in(ranges)

    def read_in(self, ranges: Mapping[TopicPartition, range]) -> Iterator[Message]:
        """The messages from `positions` on that are in these ranges.

        The position passes a message when the next one is requested: a reader that fails at one reads it again.
        """
        ends = {partition: offsets.stop for partition, offsets in ranges.items()}
        starts = {
            partition: max(self.positions.get(partition, 0), offsets.start) for partition, offsets in ranges.items()
        }
        for message in messages_between(self._cluster, starts, ends, isolation=self._isolation):
            yield message
            self.positions[TopicPartition(message.topic, message.partition)] = message.offset + 1
        # Compaction may have removed the last records; a topic that was deleted and recreated may be shorter.
        self.positions.update(ends)

    def append(
        self,
        rows: Iterable[tuple[bytes, bytes | None]],
        *,
        headers: Headers = (),
        partition: int | None = None,
        timeout_ms: float | None = None,
    ) -> list[BatchResult]:
        """Return when all in-sync replicas have these keys and values.  Raises NotAppended."""
        now_ms = self._cluster.clock.now_ms()
        with RecordProducer(self._cluster, self._options) as producer:
            results: list[BatchResult] = []
            for key, value in rows:
                producer.add(self._topic, key, value, timestamp_ms=now_ms, headers=headers, partition=partition)
                results += producer.poll()
            results += producer.flush(timeout_ms)
            failed = [each for each in results if each.status is not DeliveryStatus.ACKNOWLEDGED]
            if failed or producer.pending_count:
                reason = failed[0].error if failed else None
                raise NotAppended(reason or CallTimedOut("no acknowledgement came in time"))
            return results

"""Collects the records of one thread into batches; see `client.producing` for the other producers."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.producing.partitioner import partition_of_key
from ottla.client.producing.produce_requests import BatchResult
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB
from ottla.records.builder import BatchBuilder, build_batch, record_size_bytes_max
from ottla.records.compression import Codec
from ottla.records.record import Headers, decode_batch


@dataclass(frozen=True, slots=True)
class Batching:
    """A batch is sent when its records reach `batch_bytes` before compression; one record may be larger."""

    batch_bytes: int = 64 * KIB
    codec: Codec = Codec.NONE
    level: int | None = None


class RecordProducer:
    """Collects records by partition.  Full batches are sent at once, `push` sends the others.

    Records with a key go to the partition that Java's clients choose; those without change it with each batch.  A batch
    that its topic or a segment cannot take is sent in halves, as Kafka's producers do.

    With a `transactional_id` records are added between `begin` and `commit` of `transactions`; what was not committed
    is aborted at the end of `with`.
    """

    def __init__(
        self, cluster: Cluster, options: ProducerOptions | None = None, batching: Batching | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options or ProducerOptions()
        transactional_id = self._options.transactional_id
        self._transactions = (
            None
            if transactional_id is None
            else BatchTransactions(
                cluster,
                transactional_id,
                self._options.transaction_timeout_ms,
                self._options,
                split=self._halves,
            )
        )
        self._sink = self._transactions or RawProducer(cluster, self._options, split=self._halves)
        self._batching = batching or Batching()
        # Of topics that refused larger batches.
        self._limits_bytes: dict[str, int] = {}
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        self._keyless: dict[str, int] = {}

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sink.__exit__(kind, error, traceback)

    @property
    def transactions(self) -> BatchTransactions:
        """Of a producer with a transactional id."""
        assert self._transactions is not None, "the producer has no transactional id"
        return self._transactions

    def add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int,
        headers: Headers = (),
        partition: int | None = None,
    ) -> TopicPartition:
        """Add a record; returns its partition.  May block when too much is unacknowledged."""
        target = TopicPartition(topic, partition if partition is not None else self._choose(topic, key))
        builder = self._builders.get(target)
        size_bytes = record_size_bytes_max(key, value, headers)
        limit_bytes = self._limits_bytes.get(topic, self._batching.batch_bytes)
        if builder is not None and builder.size_bytes + size_bytes > limit_bytes:
            self._send(target)
            builder = None
        if builder is None:
            builder = self._builders[target] = BatchBuilder()
        builder.append(timestamp_ms, key, value, headers)
        return target

    def push(self) -> None:
        """Send all collected records."""
        for partition in list(self._builders):
            self._send(partition)

    def poll(self, timeout_ms: float = 0) -> list[BatchResult]:
        """The results of settled batches.  In a transaction: of stored ones; raises TransactionAbortable for others."""
        return self._sink.poll(timeout_ms)

    def flush(self, timeout_ms: float | None = None) -> list[BatchResult]:
        """Send everything and wait for the result of each batch; in a transaction its `commit` waits."""
        assert isinstance(self._sink, RawProducer), "a transaction is committed as a whole"
        self.push()
        return self._sink.flush(timeout_ms)

    @property
    def pending_count(self) -> int:
        """The count of unsettled batches."""
        return self._sink.pending_count

    @property
    def has_room(self) -> bool:
        """Whether the next `add` does not block."""
        return self._sink.has_room

    def _halves(self, partition: TopicPartition, batch: bytearray) -> list[bytearray]:
        records = decode_batch(memoryview(batch))
        # The next batches are smaller from the start, unless compression hides how large they are.
        if self._batching.codec is Codec.NONE:
            former_bytes = self._limits_bytes.get(partition.topic, self._batching.batch_bytes)
            self._limits_bytes[partition.topic] = min(former_bytes, len(batch) // 2)
        middle = len(records) // 2
        return [
            build_batch(
                part,
                codec=self._batching.codec,
                level=self._batching.level,
                is_transactional=self._transactions is not None,
            )
            for part in (records[:middle], records[middle:])
        ]

    def _send(self, partition: TopicPartition) -> None:
        builder = self._builders.pop(partition)
        batch = builder.build(
            codec=self._batching.codec,
            level=self._batching.level,
            is_transactional=self._transactions is not None,
        )
        self._sink.send(partition, batch)
        if self._keyless.get(partition.topic) == partition.partition:
            count = len(self._topic_partitions(partition.topic))
            self._keyless[partition.topic] = (partition.partition + 1) % count

    def _choose(self, topic: str, key: bytes | None) -> int:
        if key is not None:
            return partition_of_key(key, len(self._topic_partitions(topic)))
        if topic not in self._keyless:
            self._topic_partitions(topic)
        return self._keyless.setdefault(topic, 0)

    def _topic_partitions(self, topic: str) -> list[int]:
        create = self._options.allow_auto_topic_creation
        return list(self._cluster.topic(topic, allow_auto_topic_creation=create).partitions)

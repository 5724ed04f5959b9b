"""`writeStream` with `delivery=exactly-once`: restarts, batches that run again, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.errors import StreamingQueryException

from ottla.client.producing.batch_transactions import BatchTransactions
from ottla.client.wire.cluster import Cluster
from ottla.model import identifiers
from ottla.records.builder import BatchBuilder
from ottla.spark.spark_features import INSTALLED, SparkFeature
from tests.integration.spark.committed_values import committed_values
from tests.integration.spark.conftest import ReadStream
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop]

PREFIX = "tests-"


class Copy:
    """A query from a topic to another, run until it has everything, and stopped."""

    def __init__(self, read_stream: ReadStream, peer: Peer, topic: str, directory: Path) -> None:
        self.source = topic
        self.target = f"{topic}-copy"
        self.peer = peer
        self.checkpoint = directory / "checkpoint"
        self._read_stream = read_stream
        peer.create_topic(self.target, 2)

    def run(self, **options: str) -> None:
        stream = self._read_stream(subscribe=self.source, startingOffsets="earliest").load().select("key", "value")
        chosen = {
            "kafka.bootstrap.servers": self.peer.bootstrap,
            "topic": self.target,
            "checkpointLocation": str(self.checkpoint),
            "delivery": "exactly-once",
            "transactionalIdPrefix": PREFIX,
        }
        writer = stream.writeStream.format("ottla").options(**{**chosen, **options})
        writer.trigger(availableNow=True).start().awaitTermination()

    def failure(self, **options: str) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            self.run(**options)
        return str(caught.value)

    def produce(self, *values: bytes) -> None:
        self.peer.produce(self.source, [Message(value, value) for value in values])

    def committed(self) -> list[bytes]:
        return sorted(committed_values(self.peer.bootstrap, self.target))

    def forget_commit(self, batch_id: int) -> None:
        """As after a driver that died when the sink had committed, and Spark had not."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    @property
    def query_id(self) -> UUID:
        return UUID(json.loads((self.checkpoint / "metadata").read_text())["id"])

    @property
    def transactional_id(self) -> str:
        return f"{PREFIX}{self.query_id}"

    @property
    def deliveries(self) -> str:
        return f"{self.transactional_id}.deliveries"


@pytest.fixture
def copy(read_stream: ReadStream, peer: Peer, topic: str, tmp_path: Path) -> Copy:
    return Copy(read_stream, peer, topic, tmp_path)


@pytest.fixture
def transactions(copy: Copy) -> Iterator[Callable[[], BatchTransactions]]:
    """Another driver of the query, which has the query's transactional id."""
    with Cluster(copy.peer.bootstrap) as cluster:
        yield lambda: BatchTransactions(cluster, copy.transactional_id, 60_000)


def test_a_stream_is_written_once_over_restarts_and_batches_that_run_again(copy: Copy) -> None:
    # The first batch has no partition to read, and so no rows.
    copy.run()
    copy.produce(b"a", b"b", b"c")
    copy.run()
    copy.forget_commit(1)
    copy.produce(b"d")
    copy.run()
    if SparkFeature.READ_LIMITS not in INSTALLED:
        copy.run()  # the batch that runs again is all of a run with availableNow
    assert copy.committed() == [b"a", b"b", b"c", b"d"]


def test_a_transaction_that_a_killed_driver_left_open_is_aborted_and_its_batch_written_once(
    copy: Copy, transactions: Callable[[], BatchTransactions]
) -> None:
    copy.produce(b"a")
    copy.run()
    killed = transactions()
    killed.take_over()
    killed.begin()
    batch = BatchBuilder()
    batch.append(0, None, b"half of batch 1")
    killed.send(identifiers.TopicPartition(copy.target, 0), batch.build(is_transactional=True))
    killed.flush()
    killed.close()
    copy.produce(b"b")
    copy.run()
    assert copy.committed() == [b"a", b"b"]


def test_a_query_without_its_deliveries_stops_and_says_how_it_continues(copy: Copy) -> None:
    copy.produce(b"a")
    copy.run()
    copy.peer.delete_topic(copy.deliveries)
    copy.produce(b"b")
    assert "batch 1 cannot be written exactly once: no earlier batch is known" in copy.failure()
    assert copy.committed() == [b"a"]
    copy.run(exactlyOnceFromBatch="1")
    assert copy.committed() == [b"a", b"b"]


def test_a_batch_of_which_a_record_is_refused_is_not_written_at_all(copy: Copy) -> None:
    copy.produce(b"a", b"b" * 2_000)
    reason = copy.failure(**{"kafka.delivery.timeout.ms": "30000", "topic": limited_topic(copy.peer, copy.target)})
    assert "max.message.bytes" in reason
    assert committed_values(copy.peer.bootstrap, f"{copy.target}-limited") == []


def limited_topic(peer: Peer, name: str) -> str:
    peer.create_topic(f"{name}-limited", 2, max_message_bytes="1000")
    return f"{name}-limited"

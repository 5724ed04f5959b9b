"""Each setting of a topic takes effect on a log that is being served: no restart, no new topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import BatchHeader, read_header
from ottla.records.record import Record, split_batches
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import RawPeer


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings={"log.retention.check.interval.ms": "50"}) as running:
        yield running


class Topic:
    """One partition, a producer that reports each result, and access to the files."""

    def __init__(self, broker: RunningBroker, cluster: Cluster) -> None:
        self.name = f"dynamic-{uuid.uuid4().hex[:8]}"
        self.directory = Path(broker.data_dir) / f"{self.name}-0"
        self.admin = Admin(cluster)
        self.admin.create_topic(self.name, 1, configs={"flush.policy": "os"})
        self.peer = RawPeer(broker)

    def alter(self, **values: str | None) -> None:
        changes = [
            ConfigChange(name.replace("_", "."), ConfigOperation.SET, value)
            if value is not None
            else ConfigChange(name.replace("_", "."), ConfigOperation.DELETE)
            for name, value in values.items()
        ]
        self.admin.alter_configs(ConfigResource(ResourceType.TOPIC, self.name), changes)

    def produce(
        self,
        *values: bytes,
        key: bytes | None = b"k",
        timestamp_ms: int | None = None,
        codec: Codec = Codec.NONE,
        timeout_ms: int = 5_000,
    ) -> PartitionProduceResponse:
        time_ms = now_ms() if timestamp_ms is None else timestamp_ms
        batch = build_batch([Record(0, time_ms, key, value) for value in values or (b"v",)], codec)
        data = [TopicProduceData(self.name, [PartitionProduceData(0, bytes(batch))])]
        self.peer.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=data))
        _, response = self.peer.answer(ApiKey.PRODUCE, 9)
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def code(self, *values: bytes, **options: object) -> int:
        return self.produce(*values, **options).error_code  # type: ignore[arg-type]  # passed on

    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def last_batch(self) -> BatchHeader:
        data = self.segments()[-1].read_bytes()
        return read_header(list(split_batches(memoryview(data)))[-1])


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(broker: RunningBroker, cluster: Cluster) -> Iterator[Topic]:
    made = Topic(broker, cluster)
    with made.peer:
        yield made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_max_message_bytes(topic: Topic) -> None:
    value = bytes(5_000)
    assert topic.code(value) == 0
    topic.alter(max_message_bytes="1000")
    assert topic.code(value) == ErrorCode.MESSAGE_TOO_LARGE
    assert topic.code(value, codec=Codec.GZIP) == 0, "what counts is the size on the wire"
    topic.alter(max_message_bytes=None)
    assert topic.code(value) == 0


def test_message_timestamp_type(topic: Topic) -> None:
    assert topic.produce(timestamp_ms=now_ms() - 5_000).log_append_time_ms == -1
    topic.alter(message_timestamp_type="LogAppendTime")
    before_ms = now_ms()
    answer = topic.produce(timestamp_ms=5)
    assert before_ms <= answer.log_append_time_ms <= now_ms()
    header = topic.last_batch()
    assert header.is_log_append_time
    assert (header.max_timestamp_ms, header.base_timestamp_ms) == (answer.log_append_time_ms, 5)
    topic.alter(message_timestamp_type="CreateTime")
    assert topic.produce().log_append_time_ms == -1


def test_message_timestamp_bounds(topic: Topic) -> None:
    past, ahead = now_ms() - 60_000, now_ms() + 60_000
    assert [topic.code(timestamp_ms=each) for each in (past, ahead)] == [0, 0]
    topic.alter(message_timestamp_before_max_ms="5000", message_timestamp_after_max_ms="5000")
    refused = topic.produce(timestamp_ms=past)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [row.batch_index for row in refused.record_errors] == [0]
    assert topic.code(timestamp_ms=ahead) == ErrorCode.INVALID_TIMESTAMP
    assert topic.code() == 0
    # The broker's append time is accepted for any time that the producer sent.
    topic.alter(message_timestamp_type="LogAppendTime")
    assert [topic.code(timestamp_ms=each) for each in (past, ahead)] == [0, 0]


def test_compression_type_and_level(topic: Topic) -> None:
    value = b" ".join(b"%d" % (number * number % 977) for number in range(5_000))
    topic.produce(value, codec=Codec.SNAPPY)
    assert topic.last_batch().codec == Codec.SNAPPY
    sizes: dict[str, int] = {}
    for level in ("1", "9"):
        topic.alter(compression_type="gzip", compression_gzip_level=level)
        topic.produce(value)
        header = topic.last_batch()
        assert header.codec == Codec.GZIP
        sizes[level] = header.size_bytes
    assert sizes["9"] < sizes["1"]
    for name, codec in (("lz4", Codec.LZ4), ("zstd", Codec.ZSTD), ("uncompressed", Codec.NONE)):
        topic.alter(compression_type=name)
        topic.produce(value, codec=Codec.GZIP)
        assert topic.last_batch().codec == codec
    topic.alter(compression_type="producer")
    topic.produce(value, codec=Codec.LZ4)
    assert topic.last_batch().codec == Codec.LZ4


def test_cleanup_policy_compact_requires_keys(topic: Topic) -> None:
    assert topic.code(key=None) == 0
    topic.alter(cleanup_policy="compact")
    refused = topic.produce(b"1", b"2", key=None)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [row.batch_index for row in refused.record_errors] == [0, 1]
    assert topic.code(key=b"") == 0
    topic.alter(cleanup_policy="delete")
    assert topic.code(key=None) == 0


def test_min_insync_replicas(topic: Topic) -> None:
    topic.alter(min_insync_replicas="2")
    assert topic.code() == ErrorCode.NOT_ENOUGH_REPLICAS
    topic.alter(min_insync_replicas="1")
    assert topic.code() == 0


def test_segment_bytes(topic: Topic) -> None:
    for _ in range(3):
        topic.produce(bytes(500))
    assert len(topic.segments()) == 1
    topic.alter(segment_bytes="1000")
    for _ in range(3):
        topic.produce(bytes(500))
    assert len(topic.segments()) == 4
    assert topic.code(bytes(2_000)) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_segment_ms(topic: Topic) -> None:
    start_ms = now_ms() - 100_000
    topic.produce(timestamp_ms=start_ms)
    topic.alter(segment_ms="50000")
    topic.produce(timestamp_ms=start_ms + 49_000)
    assert len(topic.segments()) == 1
    topic.produce(timestamp_ms=start_ms + 60_000)
    assert len(topic.segments()) == 2


def test_segment_jitter_ms(broker: RunningBroker, cluster: Cluster) -> None:
    """A random part of it is subtracted from the age of each segment: of several logs some roll early."""
    start_ms = now_ms() - 100_000
    segments_counts = []
    for _ in range(5):
        topic = Topic(broker, cluster)
        with topic.peer:
            topic.produce(timestamp_ms=start_ms)
            topic.alter(segment_ms="50000", segment_jitter_ms="50000")
            topic.produce(timestamp_ms=start_ms + 49_000)
            segments_counts.append(len(topic.segments()))
    # Each with a probability of 49 in 50.
    assert 2 in segments_counts


def test_segment_index_bytes_and_interval(topic: Topic) -> None:
    for _ in range(12):
        topic.produce(bytes(500))
    assert len(topic.segments()) == 1
    # Each batch has an entry of 8 bytes now, and an index may have two.
    topic.alter(index_interval_bytes="0", segment_index_bytes="16")
    for _ in range(12):
        topic.produce(bytes(500))
    assert len(topic.segments()) > 3


def test_retention_bytes_and_file_delete_delay(topic: Topic) -> None:
    topic.alter(segment_bytes="1000", file_delete_delay_ms="60000")
    for _ in range(6):
        topic.produce(bytes(500))
    assert len(topic.segments()) == 6
    topic.alter(retention_bytes="1500")
    eventually(lambda: len(topic.segments()) <= 3)
    kept = list(topic.directory.glob("*.deleted"))
    assert kept, "readers may still be at them"
    topic.alter(retention_bytes="-1", file_delete_delay_ms="0")
    for _ in range(3):
        topic.produce(bytes(500))
    topic.alter(retention_bytes="600")
    eventually(lambda: len(topic.segments()) <= 2)
    eventually(lambda: len(list(topic.directory.glob("*.deleted"))) <= len(kept))


def wait_for_retention(broker: RunningBroker, cluster: Cluster) -> None:
    """Until every log has been checked since this call: that of a new topic, twice, the others between."""
    for _ in range(2):
        other = Topic(broker, cluster)
        with other.peer:
            other.alter(segment_bytes="1000", retention_ms="30000")
            for _ in range(2):
                other.produce(bytes(500), timestamp_ms=now_ms() - 60_000)
            eventually(other.segments, lambda segments: len(segments) == 1)


def test_retention_ms(topic: Topic, broker: RunningBroker, cluster: Cluster) -> None:
    topic.alter(segment_bytes="1000")
    for _ in range(3):
        topic.produce(bytes(500), timestamp_ms=now_ms() - 60_000)
    wait_for_retention(broker, cluster)
    assert len(topic.segments()) == 3
    topic.alter(retention_ms="30000")
    eventually(lambda: len(topic.segments()) == 1)


def test_flush_policy(topic: Topic) -> None:
    topic.alter(flush_policy="interval", flush_ms="3600000", flush_messages="1000000")
    assert topic.code(timeout_ms=50) == ErrorCode.REQUEST_TIMED_OUT
    topic.alter(flush_policy="ack")
    assert topic.code() == 0


def test_flush_messages(topic: Topic) -> None:
    topic.alter(flush_policy="interval", flush_ms="3600000", flush_messages="1000000")
    assert topic.code(timeout_ms=50) == ErrorCode.REQUEST_TIMED_OUT
    topic.alter(flush_messages="1")
    assert topic.code() == 0


def test_flush_ms(topic: Topic) -> None:
    topic.alter(flush_policy="interval", flush_ms="3600000", flush_messages="1000000")
    assert topic.code(timeout_ms=50) == ErrorCode.REQUEST_TIMED_OUT
    topic.alter(flush_ms="20")
    assert topic.code() == 0

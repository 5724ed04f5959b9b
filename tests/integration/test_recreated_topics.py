"""A topic is deleted and recreated under load and kills: no incarnation ever shows the records of another.

Every value is unique and produced once.  Records that were acknowledged before a deletion request belong to that
incarnation of the topic: no later request may read them, and until then all of them must be readable.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, Message, Producer

from ottla.client.admin.admin import Admin
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.delete_topics import DeleteTopicsRequest
from ottla.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.records.builder import build_batch
from ottla.records.record import Record, decode_batch, split_batches
from ottla.testing.broker import RunningBroker
from tests.eventually import eventually
from tests.integration.raw_peer import RawPeer

TOPIC = "reborn"
# In `./dev test`, and in `./dev suites`.
LIVES = (7, 14)
KILLED_LIVES = frozenset({3, 7, 12})
# In these incarnations the broker is killed this many seconds after the deletion request.
TORN_DELETIONS_S = {2: 0.0, 5: 0.002, 8: 0.004, 10: 0.008}
# Acknowledged and read records that each incarnation needs before the test continues.
ACKED_MIN, READ_MIN = 20, 10
PACE_S = 0.004
RETRY_S = 0.02


class Life:
    """From the answer of its creation to the request of its deletion."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.ends_s = float("inf")


class Load:
    """A producer of unique values that continues through all faults and records when each value was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.sent_s: dict[bytes, float] = {}
        self.acked_s: dict[bytes, float] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 3_000,
                "topic.metadata.refresh.interval.ms": 100,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()
        self._producer.flush(10)

    def acked_since(self, moment_s: float) -> set[bytes]:
        """Values that were sent and acknowledged since then; only the callback of an acknowledgement may be late."""
        return {value for value in list(self.acked_s) if self.sent_s[value] > moment_s}

    def _run(self) -> None:
        for number in itertools.count():
            if self._stops.is_set():
                return
            value = b"value-%d" % number
            self.sent_s[value] = time.monotonic()
            self._producer.produce(TOPIC, value, on_delivery=self._on_delivery)
            self._producer.poll(0)
            time.sleep(PACE_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            self.acked_s[value] = time.monotonic()


class Reader:
    """Fetches partition 0 by raw requests, with a session or without; records when each request was sent."""

    def __init__(self, broker: RunningBroker, *, has_session: bool = False, by_id: bool = False) -> None:
        self.read: list[tuple[float, bytes]] = []
        self.errors: set[int] = set()
        self._broker = broker
        self._has_session = has_session
        self._version = 17 if by_id else 12
        self._topic_id = ZERO_UUID
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stops.set()
        self._thread.join()

    def values_since(self, moment_s: float) -> set[bytes]:
        """Values that were returned to requests sent since then."""
        return {value for sent_s, value in self.read if sent_s > moment_s}

    def _run(self) -> None:
        while not self._stops.is_set():
            try:
                with RawPeer(self._broker) as peer:
                    self._fetch(peer)
            except (OSError, AssertionError):
                self._stops.wait(RETRY_S)  # the broker was killed

    def _fetch(self, peer: RawPeer) -> None:
        position = session_id = 0
        epoch = 0 if self._has_session else -1
        self._topic_id = topic_id_from(peer)
        while not self._stops.is_set():
            wanted = FetchPartition(0, fetch_offset=position, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=20,
                min_bytes=1,
                max_bytes=1 << 20,
                session_id=session_id,
                session_epoch=epoch,
                topics=[FetchTopic(TOPIC, self._topic_id, [wanted])],
            )
            sent_s = time.monotonic()
            peer.ask(ApiKey.FETCH, self._version, request)
            _, response = peer.answer(ApiKey.FETCH, self._version)
            assert isinstance(response, FetchResponse)
            assert response.error_code == 0
            if self._has_session:
                session_id, epoch = response.session_id, epoch + 1
            for part in (part for topic in response.responses for part in topic.partitions):
                self.errors.add(part.error_code)
                if part.error_code:
                    position = 0
                    self._topic_id = topic_id_from(peer)
                for batch in split_batches(memoryview(part.records or b"")):
                    for record in decode_batch(batch):
                        if record.offset >= position and record.value is not None:
                            self.read.append((sent_s, record.value))
                            position = record.offset + 1


def topic_id_from(peer: RawPeer) -> UUID:
    """The topic's id as Metadata has it, all zero while there is no topic."""
    request = MetadataRequest([MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    peer.ask(ApiKey.METADATA, 12, request)
    _, response = peer.answer(ApiKey.METADATA, 12)
    assert isinstance(response, MetadataResponse)
    return response.topics[0].topic_id


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.mark.parametrize("lives_count", LIVES)
def test_no_incarnation_of_a_topic_shows_the_records_of_another(broker: RunningBroker, lives_count: int) -> None:
    load = Load(broker.bootstrap)
    readers = [Reader(broker), Reader(broker, has_session=True), Reader(broker, by_id=True)]
    lives: list[Life] = []
    seen: list[set[bytes]] = []
    try:
        with Cluster(broker.bootstrap) as cluster:
            for number in range(lives_count):
                partitions_count = 1 + number % 3
                Admin(cluster).create_topic(TOPIC, partitions_count)
                lives.append(Life())
                wait_until_used(load, readers)
                if number in KILLED_LIVES:
                    broker.kill()
                    broker.start()
                    wait_until_used(load, readers)
                # In this order: values that are acknowledged after the read need not be in it.
                acked = load.acked_since(lives[-1].began_s)
                stored = stored_values(broker, partitions_count)
                assert acked <= stored, "acknowledged and not there"
                seen.append(stored)
                lives[-1].ends_s = time.monotonic()
                if number in TORN_DELETIONS_S:
                    tear_deletion(broker, TORN_DELETIONS_S[number])
                delete(cluster)
    finally:
        load.stop()
        for reader in readers:
            reader.stop()
    for number, life in enumerate(lives):
        # Acknowledged in this incarnation: no request sent in a later incarnation may return it.
        own = {value for value, acked_s in load.acked_s.items() if acked_s < life.ends_s}
        for later in range(number + 1, len(lives)):
            assert not own & seen[later], f"life {later} holds records of life {number}"
        if number + 1 < len(lives):
            next_began_s = lives[number + 1].began_s
            for reader in readers:
                assert not reader.values_since(next_began_s) & own
    for reader in readers:
        assert len(reader.values_since(0)) > READ_MIN * lives_count
        assert reader.errors & {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
    assert ErrorCode.UNKNOWN_TOPIC_ID in readers[-1].errors


def wait_until_used(load: Load, readers: Sequence[Reader]) -> None:
    """Until values that were sent from now on are acknowledged, and every reader has read something new."""
    now_s = time.monotonic()
    eventually(lambda: len(load.acked_since(now_s)), lambda count: count > ACKED_MIN)
    eventually(lambda: min(len(reader.values_since(now_s)) for reader in readers), lambda count: count > READ_MIN)


def tear_deletion(broker: RunningBroker, after_s: float) -> None:
    with RawPeer(broker) as peer:
        peer.ask(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1_000))
        time.sleep(after_s)
        broker.kill()
    broker.start()


def delete(cluster: Cluster) -> None:
    refusal = Admin(cluster).delete_topics([TOPIC])[TOPIC]
    assert refusal is None or refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, refusal


def stored_values(broker: RunningBroker, partitions_count: int) -> set[bytes]:
    values: set[bytes] = set()
    with RawPeer(broker) as peer:
        for index in range(partitions_count):
            position = 0
            while records := fetch_records(peer, index, position):
                values.update(record.value for record in records if record.value is not None)
                position = records[-1].offset + 1
    return values


def fetch_records(peer: RawPeer, index: int, position: int) -> list[Record]:
    wanted = FetchPartition(index, fetch_offset=position, partition_max_bytes=1 << 20)
    peer.ask(ApiKey.FETCH, 12, FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(TOPIC, partitions=[wanted])]))
    _, response = peer.answer(ApiKey.FETCH, 12)
    assert isinstance(response, FetchResponse)
    part = response.responses[0].partitions[0]
    assert part.error_code == 0
    batches = split_batches(memoryview(part.records or b""))
    return [record for batch in batches for record in decode_batch(batch) if record.offset >= position]


def test_partition_without_a_directory_after_a_crash_is_created_at_the_start(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    broker = RunningBroker(data_dir)
    try:
        broker.start()
        with Cluster(broker.bootstrap) as cluster:
            admin = Admin(cluster)
            admin.create_topic("grown", 1)
            assert admin.create_partitions({"grown": 3}) == {"grown": None}
        broker.kill()
        # The tree has the partition, its directory was not made yet: what a crash between the two leaves.
        shutil.rmtree(data_dir / "grown-2")
        broker.start()
        with Cluster(broker.bootstrap) as cluster:
            assert list(Admin(cluster).describe_topics(["grown"])[0].partitions) == [0, 1, 2]
            with RawProducer(cluster) as producer:
                producer.send(TopicPartition("grown", 2), build_batch([Record(0, 1_700_000_000_000, b"k", b"v")]), 1)
                (result,) = producer.flush()
            assert result.base_offset == 0
        assert (data_dir / "grown-2").is_dir()
    finally:
        broker.close()

"""Three brokers, each a process: a leader is killed under load, and clients notice no more than a delay."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.testing.cluster import RunningCluster
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC = "orders"
KILLS = 3
READ_WITHIN_S = 60.0
DELIVERED_WITHIN_S = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with skips_without_zookeeper():
        # Followers that are gone leave the in-sync replicas with their session.
        cluster = RunningCluster(3, settings={"zookeeper.session.timeout.ms": "6000"}, has_zookeeper=has_zookeeper)
    with cluster:
        yield cluster


def create(cluster: RunningCluster, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(TOPIC, 1, 3, config=settings)])[TOPIC].result(30)
    cluster.wait_for_isr(TOPIC, 0)


class Sending(threading.Thread):
    """Produces numbered values, one after the other, until it is stopped."""

    def __init__(self, cluster: RunningCluster) -> None:
        super().__init__(name="sending", daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        self._stopping = threading.Event()
        self.acknowledged: dict[bytes, int] = {}
        self.errors: list[KafkaError] = []
        # Of the last report.
        self.progress = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(0.005):
            self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._on_delivery)
            self._producer.poll(0)
            number += 1

    def finish(self) -> None:
        self._stopping.set()
        self.join()
        assert self._producer.flush(DELIVERED_WITHIN_S) == 0, "not all was acknowledged"

    def wait_for_progress(self) -> None:
        """Wait until a value that is sent from now on is acknowledged."""
        self.progress.clear()
        assert self.progress.wait(DELIVERED_WITHIN_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        if error is not None:
            self.errors.append(error)
            return
        offset = message.offset()
        assert offset is not None
        self.acknowledged[value] = offset
        self.progress.set()


def read_all(cluster: RunningCluster) -> list[bytes]:
    """Every value below the high watermark, in order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0})
    place = TopicPartition(TOPIC, 0, 0)
    _, end_offset = consumer.get_watermark_offsets(place, timeout=READ_WITHIN_S)
    consumer.assign([place])
    values: list[bytes] = []
    while len(values) < end_offset:
        # It returns when it has the requested number.
        messages = consumer.consume(min(1_000, end_offset - len(values)), READ_WITHIN_S)
        assert messages, f"{len(values)} of {end_offset} records came"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == len(values)
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
    consumer.close()
    return values


@pytest.mark.parametrize("policy", ["ack", "os"])
def test_killed_leaders_lose_nothing_store_nothing_twice_and_no_producer_sees_an_error(
    cluster: RunningCluster, policy: str
) -> None:
    create(cluster, min_insync_replicas="2", flush_policy=policy)
    sending = Sending(cluster)
    sending.start()
    for _ in range(KILLS):
        sending.wait_for_progress()
        leader = cluster.leader_of(TOPIC, 0)
        cluster.broker(leader).kill()
        cluster.wait_for_leader(TOPIC, 0, other_than=leader)
        sending.wait_for_progress()
        cluster.start()
        cluster.wait_for_isr(TOPIC, 0)
    sending.finish()
    assert sending.errors == []
    values = read_all(cluster)
    assert values == [b"%d" % number for number in range(len(values))]
    assert {value: offset for offset, value in enumerate(values)} == sending.acknowledged


def test_produce_is_refused_below_min_insync_replicas_and_acknowledged_records_stay(cluster: RunningCluster) -> None:
    create(cluster, min_insync_replicas="2")
    leader = cluster.leader_of(TOPIC, 0)
    followers = [node_id for node_id in cluster.brokers if node_id != leader]
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "retries": 0, "message.timeout.ms": 60_000})

    def send() -> KafkaError | None:
        producer.produce(TOPIC, b"v", partition=0, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(DELIVERED_WITHIN_S) == 0
        return told.pop()

    assert send() is None
    for node_id in followers:
        cluster.broker(node_id).kill()
    cluster.wait_for_isr(TOPIC, 0, {leader})
    error = send()
    assert error is not None
    assert error.code() == KafkaError.NOT_ENOUGH_REPLICAS
    cluster.start()
    cluster.wait_for_isr(TOPIC, 0)
    assert send() is None
    assert read_all(cluster) == [b"v", b"v"]

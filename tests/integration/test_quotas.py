"""Quotas with real clients: what a throttled producer, consumer, administrator and address meet."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from ottla.client.admin.admin import Admin, NewTopic
from ottla.client.admin.quotas import SetQuotas, alter_quotas, describe_quotas
from ottla.client.wire.address import parse_bootstrap
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import BrokerRefused
from ottla.client.wire.options import ClientOptions
from ottla.model.error_code import ErrorCode
from ottla.model.quotas import QuotaEntity, QuotaKind
from ottla.testing.broker import RunningBroker
from tests.command_line import ottla
from tests.eventually import eventually

DEADLINE_S = 60.0
VALUE = b"x" * 1_000
# Rates over one second: what a client is throttled for, it is within the seconds of a test.
SETTINGS = {"quota.window.num": "2", "quota.window.size.seconds": "1", "controller.quota.window.num": "1"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as opened:
        yield opened
        for entity, values in describe_quotas(opened):
            alter_quotas(opened, entity, dict.fromkeys(QuotaKind(name) for name in values))


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"limited-{time.monotonic_ns()}"
    Admin(cluster).create_topic(name, 1)
    return name


def fill(bootstrap: str, topic: str, count: int, client_id: str) -> float:
    """Produce one message in each request; the seconds until all are acknowledged."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, client_id=client_id, linger_ms=0, max_in_flight_requests_per_connection=1
    )
    began_s = time.monotonic()
    for _ in range(count):
        producer.send(topic, VALUE, partition=0).get(DEADLINE_S)
    took_s = time.monotonic() - began_s
    producer.close()
    return took_s


def test_producer_is_held_at_its_rate_and_another_one_is_not(
    broker: RunningBroker, cluster: Cluster, topic: str
) -> None:
    alter_quotas(cluster, QuotaEntity(client_id="slow"), {QuotaKind.PRODUCER_BYTE_RATE: 10_000})
    # A window of two samples holds 10 to 20 kB; the rest comes at 10 kB/s.
    assert fill(broker.bootstrap, topic, 40, "slow") > 1.0
    assert fill(broker.bootstrap, topic, 5, "fast") < DEADLINE_S


def test_librdkafka_shows_the_throttle_time(broker: RunningBroker, cluster: Cluster, topic: str) -> None:
    alter_quotas(cluster, QuotaEntity(user="ANONYMOUS"), {QuotaKind.PRODUCER_BYTE_RATE: 20_000})
    throttles: list[float] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "throttle_cb": lambda event: throttles.append(event.throttle_time)}
    )
    for _ in range(50):
        producer.produce(topic, VALUE, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    eventually(lambda: producer.poll(0.05) is not None and bool(throttles))
    # 50 kB of a limit of 20 kB in the first second.
    assert 0.5 < throttles[0] < 3.0


def test_consumer_is_held_at_its_rate_and_loses_nothing(broker: RunningBroker, cluster: Cluster, topic: str) -> None:
    fill(broker.bootstrap, topic, 30, "fast")
    alter_quotas(cluster, QuotaEntity("ANONYMOUS", "reader"), {QuotaKind.CONSUMER_BYTE_RATE: 10_000})
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, client_id="reader", auto_offset_reset="earliest", max_poll_records=500
    )
    consumer.assign([TopicPartition(topic, 0)])
    offsets: list[int] = []
    began_s = time.monotonic()
    while len(offsets) < 30 and time.monotonic() < began_s + DEADLINE_S:
        for records in consumer.poll(200).values():
            offsets += [record.offset for record in records]
    took_s = time.monotonic() - began_s
    consumer.close()
    assert offsets == list(range(30))
    # One answer has 10 kB at most, and 30 kB come.
    assert took_s > 0.5


def test_batch_larger_than_the_window_allows_is_delivered(broker: RunningBroker, cluster: Cluster, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    producer.send(topic, b"x" * 40_000, partition=0).get(DEADLINE_S)
    producer.close()
    alter_quotas(cluster, QuotaEntity(client_id="narrow"), {QuotaKind.CONSUMER_BYTE_RATE: 1_000})
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, client_id="narrow", auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    assert [record.offset for records in consumer.poll(int(DEADLINE_S * 1_000)).values() for record in records] == [0]
    consumer.close()


def test_administrator_that_creates_too_much_is_refused(broker: RunningBroker, cluster: Cluster) -> None:
    alter_quotas(cluster, QuotaEntity(client_id="eager"), {QuotaKind.CONTROLLER_MUTATION_RATE: 0.01})
    names = [f"eager-{number}-{time.monotonic_ns()}" for number in range(2)]
    with Cluster(broker.bootstrap, ClientOptions(client_id="eager")) as eager:
        created, refused = Admin(eager).create_topics([NewTopic(name, 3) for name in names]).values()
    assert not isinstance(created, BrokerRefused)
    # Three partitions are what the rate allows in five minutes.
    assert isinstance(refused, BrokerRefused)
    assert refused.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_address_that_connects_too_fast_is_closed_after_a_while(broker: RunningBroker, cluster: Cluster) -> None:
    alter_quotas(cluster, QuotaEntity(ip="127.0.0.1"), {QuotaKind.CONNECTION_CREATION_RATE: 3})
    (address,) = parse_bootstrap(broker.bootstrap)
    opened = [socket.create_connection(address, timeout=DEADLINE_S) for _ in range(12)]
    # The broker sends nothing before a request: only the end of a connection can be read.
    closed, _, _ = select.select(opened, [], [], DEADLINE_S)
    assert closed
    assert closed[0].recv(1) == b""
    for peer in opened:
        peer.close()


def test_quota_is_kept_and_described(cluster: Cluster) -> None:
    entity = QuotaEntity("", "")
    alter_quotas(cluster, entity, {QuotaKind.REQUEST_PERCENTAGE: 12.5})
    assert describe_quotas(cluster) == [SetQuotas(entity, {"request_percentage": 12.5})]
    alter_quotas(cluster, entity, {QuotaKind.REQUEST_PERCENTAGE: None})
    assert describe_quotas(cluster) == []


def test_command_sets_lists_and_removes_quotas(broker: RunningBroker, cluster: Cluster) -> None:
    def ottla_quota(*arguments: str, status: int = 0) -> str:
        done = ottla("quota", *arguments, "--bootstrap-server", broker.bootstrap, status=status)
        return done.out + done.err

    ottla_quota("set", "--user", "alice", "--client-id-defaults", "producer_byte_rate=1048576", "request_percentage=50")
    rows = [line.split() for line in ottla_quota("list", "--user", "alice").splitlines()]
    assert rows[1:] == [
        ["alice", "<default>", "-", "producer_byte_rate", "1048576"],
        ["alice", "<default>", "-", "request_percentage", "50"],
    ]
    ottla_quota("remove", "--user", "alice", "--client-id-defaults")
    assert describe_quotas(cluster) == []
    assert "above 0" in ottla_quota("set", "--user", "alice", "producer_byte_rate=-1", status=1)

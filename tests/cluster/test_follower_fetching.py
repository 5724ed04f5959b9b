"""Consumers that read from the follower in their rack (KIP-392), by librdkafka; three brokers, each a process."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.model.broker_settings import RACK_AWARE_SELECTOR
from ottla.testing.cluster import RunningCluster
from tests.cluster.traffic import make_topic, produce
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC = "orders"
RACKS = ("a", "b", "c")
READ_WITHIN_S = 60.0
VALUE_BYTES = 1_000
SETTINGS = {
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "zookeeper.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "1500",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with (
        skips_without_zookeeper(),
        RunningCluster(3, settings=SETTINGS, racks=RACKS, serves_metrics=True, has_zookeeper=has_zookeeper) as running,
    ):
        make_topic(running.bootstrap, TOPIC, 1, 3)
        running.wait_for_isr(TOPIC, 0)
        yield running


def bytes_out(cluster: RunningCluster, node_id: int) -> float:
    """The bytes that a broker has sent in fetch responses; a follower sends them only to consumers."""
    with urllib.request.urlopen(cluster.broker(node_id).admin_url + "/metrics", timeout=30) as response:
        for line in response.read().decode().splitlines():
            if line.startswith("kafka_server_brokertopicmetrics_bytesout_total "):
                return float(line.rpartition(" ")[2])
    raise AssertionError("the broker has no such figure")


def followers(cluster: RunningCluster) -> list[int]:
    leader = cluster.leader_of(TOPIC, 0)
    return [node_id for node_id in cluster.brokers if node_id != leader]


def write(cluster: RunningCluster, *numbers: int) -> list[int]:
    produce(cluster.bootstrap, TOPIC, (f"{number:0{VALUE_BYTES}}" for number in numbers), acks="all")
    return list(numbers)


@contextmanager
def consumer_in(cluster: RunningCluster, rack: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "near",
            "client.rack": rack,
            "enable.auto.commit": False,
            # A reset would skip records or repeat them.
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    give_up_s = time.monotonic() + READ_WITHIN_S
    while len(found) < count:
        message = consumer.poll(1.0)
        if message is not None:
            error, value = message.error(), message.value()
            if error is None and value is not None:
                found.append(int(value))
            else:
                assert error is not None
                assert not error.fatal(), error
                assert "OFFSET" not in str(error.name()), error
        assert time.monotonic() < give_up_s, f"{len(found)} of {count} records came"
    return found


def test_consumer_reads_from_the_follower_in_its_rack(cluster: RunningCluster) -> None:
    near = followers(cluster)[0]
    before = bytes_out(cluster, near)
    written = write(cluster, *range(500))
    with consumer_in(cluster, RACKS[near - 1]) as consumer:
        assert read(consumer, 500) == written
        more = write(cluster, *range(500, 600))
        assert read(consumer, 100) == more, "it was waiting there"
    sent = bytes_out(cluster, near) - before
    assert sent >= 0.9 * 600 * VALUE_BYTES, "the first records may have come from the leader"


def test_consumer_in_the_leaders_rack_and_one_without_rack_read_from_the_leader(cluster: RunningCluster) -> None:
    leader = cluster.leader_of(TOPIC, 0)
    written = write(cluster, *range(100))
    for rack in (RACKS[leader - 1], "elsewhere", ""):
        with consumer_in(cluster, rack) as consumer:
            assert read(consumer, 100) == written
    assert [bytes_out(cluster, node_id) for node_id in followers(cluster)] == [0, 0]


def test_consumer_continues_when_its_follower_is_killed(cluster: RunningCluster) -> None:
    near = followers(cluster)[0]
    written = write(cluster, *range(200))
    with consumer_in(cluster, RACKS[near - 1]) as consumer:
        assert read(consumer, 200) == written
        assert bytes_out(cluster, near) > 0
        cluster.broker(near).kill()
        more = write(cluster, *range(200, 400))
        assert read(consumer, 200) == more


def test_consumer_continues_when_its_follower_leaves_and_rejoins_the_isr(cluster: RunningCluster) -> None:
    near = followers(cluster)[0]
    written = write(cluster, *range(200))
    with consumer_in(cluster, RACKS[near - 1]) as consumer:
        assert read(consumer, 200) == written
        assert bytes_out(cluster, near) > 0
        cluster.broker(near).pause()
        cluster.wait_for_isr(TOPIC, 0, set(cluster.brokers) - {near})
        more = write(cluster, *range(200, 400))
        cluster.broker(near).resume()
        assert read(consumer, 200) == more
        cluster.wait_for_isr(TOPIC, 0)
        last = write(cluster, *range(400, 500))
        assert read(consumer, 100) == last


def test_consumer_continues_when_the_leader_is_killed_and_its_follower_leads(cluster: RunningCluster) -> None:
    leader, near = cluster.leader_of(TOPIC, 0), followers(cluster)[0]
    written = write(cluster, *range(200))
    with consumer_in(cluster, RACKS[near - 1]) as consumer:
        assert read(consumer, 200) == written
        cluster.broker(leader).kill()
        cluster.wait_for_leader(TOPIC, 0, other_than=leader)
        more = write(cluster, *range(200, 400))
        assert read(consumer, 200) == more

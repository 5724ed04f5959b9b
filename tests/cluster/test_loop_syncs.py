"""No broker ever syncs on its event loop: a slow disk must not delay its connections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from ottla.testing.loop_syncs import SYNCED_EVENT, WATCHED_COMMAND
from tests.cluster.traffic import WITHIN_S, consume, produce
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
SMALL_SEGMENTS = {"segment.bytes": "16384", "file.delete.delay.ms": "0"}
MIN_IN_SYNC = {"min.insync.replicas": "2"}
VALUES = [f"{number:01000d}" for number in range(60)]


@pytest.fixture
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with (
        skips_without_zookeeper(),
        RunningCluster(3, settings=SETTINGS, command=WATCHED_COMMAND, has_zookeeper=has_zookeeper) as running,
    ):
        yield running


def syncs_on_loops(cluster: RunningCluster) -> list[str]:
    return [line for broker in cluster.brokers.values() for line in broker.log_lines if SYNCED_EVENT in line]


def says(broker: RunningBroker, *events: str) -> bool:
    return any(event in line for line in broker.log_lines for event in events)


def wait_until_any_says(cluster: RunningCluster, event: str) -> None:
    eventually(lambda: any(says(broker, event) for broker in cluster.brokers.values()))


def make(admin: AdminClient, *topics: NewTopic) -> None:
    for made in admin.create_topics(list(topics)).values():
        made.result(WITHIN_S)


def configure(admin: AdminClient, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for each in admin.incremental_alter_configs([altered]).values():
        each.result(WITHIN_S)


def has_no_first_segment(broker: RunningBroker, topic: str) -> bool:
    return not (broker.data_dir / f"{topic}-0" / f"{0:020d}.log").exists()


@pytest.mark.timeout(600)
def test_nothing_is_synced_on_an_event_loop_while_topics_are_created_cleaned_and_deleted(
    cluster: RunningCluster,
) -> None:
    brokers = list(cluster.brokers.values())
    bootstrap = cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    make(
        admin,
        NewTopic("single", 1, 3),
        NewTopic("pair", 2, 3),
        NewTopic("many", 8, 3),
        NewTopic("rolled", 1, 3, config=SMALL_SEGMENTS),
        NewTopic(
            "compacted",
            1,
            3,
            config={**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        ),
    )
    for topic in ("single", "pair", "many", "rolled"):
        produce(bootstrap, topic, VALUES, acks="all", batch_size=4000)
    produce_keyed(bootstrap, "compacted")
    wait_until_any_says(cluster, "log.cleaned")
    assert consume(bootstrap, "single", len(VALUES), "readers") == VALUES

    deleted = admin.delete_records([ConfluentPartition("rolled", 0, 30)])
    for each in deleted.values():
        each.result(WITHIN_S)
    configure(admin, "rolled", retention_ms="1")
    for broker in brokers:
        eventually(partial(has_no_first_segment, broker, "rolled"))
    configure(admin, "single", flush_policy="os")
    for broker in brokers:
        eventually((broker.data_dir / "single-0" / "unflushed").exists)

    # Registered again, after its session ended.
    brokers[2].pause()
    eventually(lambda: len(cluster.info().brokers) == 2)
    brokers[2].resume()
    eventually(lambda: len(cluster.info().brokers) == 3)

    for gone in admin.delete_topics(["single", "pair", "many", "rolled"]).values():
        gone.result(WITHIN_S)
    for broker in brokers:
        eventually((broker.data_dir / "many-0").exists, lambda is_there: not is_there)
    assert syncs_on_loops(cluster) == []


@pytest.mark.timeout(600)
def test_nothing_is_synced_on_the_event_loop_of_a_follower_that_truncates(cluster: RunningCluster) -> None:
    # With `min.insync.replicas` of 2 a follower that was killed stays eligible, and leads when the leader is gone.
    make(AdminClient({"bootstrap.servers": cluster.bootstrap}), NewTopic("parted", 1, 3, config=MIN_IN_SYNC))
    produce(cluster.bootstrap, "parted", VALUES[:5], acks="all")
    leader = cluster.broker(cluster.leader_of("parted", 0))
    followers = [broker for broker in cluster.brokers.values() if broker is not leader]
    common_bytes = log_bytes(leader, "parted")
    for follower in followers:
        follower.kill()
    produce(leader.bootstrap, "parted", VALUES[5:10], acks="1", enable_idempotence=False)
    assert log_bytes(leader, "parted") > common_bytes
    leader.kill()
    for follower in followers:
        follower.start()
    cluster.wait_for_leader("parted", 0, other_than=leader.node_id)
    leader.start()
    cluster.wait_for_isr("parted", 0)
    assert log_bytes(leader, "parted") == common_bytes, "it was cut"
    assert syncs_on_loops(cluster) == []


def log_bytes(broker: RunningBroker, topic: str) -> int:
    return (broker.data_dir / f"{topic}-0" / f"{0:020d}.log").stat().st_size


def produce_keyed(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.size": 4000})
    for _ in range(3):
        for number, value in enumerate(VALUES):
            producer.produce(topic, value.encode(), key=b"%d" % (number % 5))
        assert producer.flush(WITHIN_S) == 0

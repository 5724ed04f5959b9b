"""Three brokers, each a process; files of one replica are cut or altered, and its records come from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.testing.cluster import RunningCluster
from ottla.testing.loop_syncs import WATCHED_COMMAND
from tests.cluster.test_loop_syncs import syncs_on_loops
from tests.cluster.traffic import consume, make_topic, produce
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC = "orders"
VALUES = [f"{number:0200d}" for number in range(2_000)]
SEGMENT_BYTES = 64 * 1024

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Damage = Callable[[bytearray], None]


@pytest.fixture
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with skips_without_zookeeper():
        cluster = RunningCluster(
            3, settings={"zookeeper.session.timeout.ms": "4000"}, command=WATCHED_COMMAND, has_zookeeper=has_zookeeper
        )
    with cluster:
        make_topic(
            cluster.bootstrap,
            TOPIC,
            replicas=3,
            config={"segment.bytes": str(SEGMENT_BYTES), "min.insync.replicas": "2"},
        )
        cluster.wait_for_isr(TOPIC, 0)
        produce(cluster.bootstrap, TOPIC, VALUES, acks="all", batch_size=4_000)
        cluster.wait_until_replicated()
        yield cluster


def segments(cluster: RunningCluster, node_id: int) -> list[Path]:
    return sorted((cluster.broker(node_id).data_dir / f"{TOPIC}-0").glob("*.log"))


def content(cluster: RunningCluster, node_id: int) -> bytes:
    """The log as one run: replicas roll their segments independently."""
    return b"".join(path.read_bytes() for path in segments(cluster, node_id))


def lose_the_end(data: bytearray) -> None:
    del data[len(data) // 3 :]


def flip_a_record(data: bytearray) -> None:
    data[len(data) // 2] ^= 0xFF


def clear_the_middle(data: bytearray) -> None:
    third = len(data) // 3
    data[third : 2 * third] = bytes(third)


def alter(path: Path, damage: Damage) -> None:
    data = bytearray(path.read_bytes())
    damage(data)
    with path.open("r+b") as file:
        file.truncate(len(data))
        file.write(data)


def value_at(cluster: RunningCluster, offset: int) -> str:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "one", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    try:
        [message] = consumer.consume(1, 60)
        assert message.error() is None, message.error()
        assert message.offset() == offset
        return (message.value() or b"").decode()
    finally:
        consumer.close()


def check_all_equal(cluster: RunningCluster) -> None:
    cluster.wait_for_isr(TOPIC, 0)
    cluster.wait_until_replicated()
    whole = content(cluster, cluster.leader_of(TOPIC, 0))
    assert all(content(cluster, node_id) == whole for node_id in cluster.brokers)
    assert consume(cluster.bootstrap, TOPIC, len(VALUES), "reader") == VALUES


@pytest.mark.parametrize(
    ("slot", "damage"),
    [(1, lose_the_end), (-1, lose_the_end), (-1, flip_a_record)],
    ids=["closed", "active", "flipped"],
)
def test_replica_that_was_damaged_while_its_broker_was_down_is_recreated(
    cluster: RunningCluster, slot: int, damage: Damage
) -> None:
    victim = next(node_id for node_id in cluster.brokers if node_id != cluster.leader_of(TOPIC, 0))
    cluster.broker(victim).kill()
    cluster.wait_for_isr(TOPIC, 0, set(cluster.brokers) - {victim})
    assert len(segments(cluster, victim)) > 2
    alter(segments(cluster, victim)[slot], damage)
    cluster.start()
    check_all_equal(cluster)
    assert list(cluster.broker(victim).data_dir.glob(f"{TOPIC}-0.*")), "the damaged log is kept beside"


def test_leader_with_a_damaged_log_hands_over_and_is_recreated_at_its_next_start(
    cluster: RunningCluster,
) -> None:
    leader = cluster.leader_of(TOPIC, 0)
    cluster.broker(leader).kill()
    cluster.wait_for_leader(TOPIC, 0, other_than=leader)
    # Its ends stay correct, so it joins the in-sync replicas again and leads.
    alter(segments(cluster, leader)[1], clear_the_middle)
    cluster.start()
    cluster.wait_for_isr(TOPIC, 0)
    for other in [node_id for node_id in cluster.brokers if node_id != leader]:
        cluster.broker(other).stop()
    eventually(lambda: cluster.leader_of(TOPIC, 0) == leader, within_s=30)
    cluster.start()
    cluster.wait_for_isr(TOPIC, 0)
    first, following = [int(path.stem) for path in segments(cluster, leader)[1:3]]
    # The next leader reads the records that this one cannot.
    assert value_at(cluster, (first + following) // 2) == VALUES[(first + following) // 2]
    cluster.wait_for_leader(TOPIC, 0, other_than=leader)
    cluster.wait_for_isr(TOPIC, 0, set(cluster.brokers) - {leader})
    assert syncs_on_loops(cluster) == [], "the mark of a damaged log is written elsewhere"
    cluster.broker(leader).stop()
    cluster.start()
    check_all_equal(cluster)
    assert syncs_on_loops(cluster) == [], "and so is what sets it aside"

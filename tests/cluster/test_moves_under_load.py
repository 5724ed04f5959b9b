"""All replicas of a topic move to other brokers and back under load, while a broker is killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.metadata import PartitionInfo
from ottla.model.identifiers import TopicPartition
from ottla.testing.cluster import RunningCluster
from tests.cluster.test_rolling_restart import TOPIC, Load
from tests.cluster.traffic import consume, make_topic
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

PARTITIONS = 6

pytestmark = pytest.mark.slow


def partitions_of(cluster: RunningCluster) -> list[PartitionInfo]:
    (topic,) = [each for each in cluster.topics() if each.name == TOPIC]
    return [topic.partitions[index] for index in sorted(topic.partitions)]


def begin(cluster: RunningCluster, replicas: Callable[[int], Sequence[int]]) -> None:
    """Retry until it succeeds: the request may have gone to the broker that is killed."""
    targets = {TopicPartition(TOPIC, index): replicas(index) for index in range(PARTITIONS)}

    def is_granted() -> bool:
        try:
            with Cluster(cluster.bootstrap) as client:
                return set(Admin(client).alter_reassignments(targets).values()) == {None}
        except ClientError:
            return False

    eventually(is_granted)


def wait_until_at(cluster: RunningCluster, *node_ids: int) -> None:
    cluster.wait_for(
        f"{TOPIC} at {node_ids}",
        lambda: partitions_of(cluster),
        lambda seen: all(
            set(each.replicas) == set(each.in_sync_replicas) == set(node_ids) and each.leader_id in node_ids
            for each in seen
        ),
    )


@pytest.mark.parametrize("killed", [1, 3])
def test_moving_topic_loses_and_repeats_nothing_when_a_broker_is_killed(killed: int, has_zookeeper: bool) -> None:
    with skips_without_zookeeper():
        running = RunningCluster(4, settings={"replica.fetch.max.bytes": "4096"}, has_zookeeper=has_zookeeper)
    try:
        running.start()
        make_topic(running.bootstrap, TOPIC, partitions=PARTITIONS, replicas=2, config={"min.insync.replicas": "1"})
        begin(running, lambda index: [1, 2] if index % 2 else [2, 1])
        wait_until_at(running, 1, 2)
        load = Load(running.bootstrap)
        eventually(lambda: len(load.acknowledged) > 300)
        begin(running, lambda index: [3, 4] if index % 2 else [4, 3])
        running.broker(killed).kill()
        sent = len(load.acknowledged)
        eventually(lambda: len(load.acknowledged) > sent + 100)
        running.broker(killed).start()
        wait_until_at(running, 3, 4)
        begin(running, lambda index: [1, 2] if index % 2 else [2, 1])
        wait_until_at(running, 1, 2)
        load.stop()
        assert load.errors == []
        found = consume(running.bootstrap, TOPIC, len(load.acknowledged), "readers")
        assert sorted(map(int, found)) == sorted(load.acknowledged)
        for gone in (3, 4):
            eventually(lambda gone=gone: not list(running.broker(gone).data_dir.glob(f"{TOPIC}-?")))  # type: ignore[misc]
    finally:
        running.close()

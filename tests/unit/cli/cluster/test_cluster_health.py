"""What `ottla cluster status` makes of brokers' and ZooKeeper's answers."""

from __future__ import annotations

import json
from uuid import uuid4

from ottla.cli.cluster.health import (
    ClusterHealth,
    ZooKeeperHealth,
    cluster_health,
    health_object,
    health_text,
    zookeeper_health,
)
from ottla.client.admin.replicas import StoredReplica
from ottla.client.wire.address import Address
from ottla.client.wire.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

SRVR = """\
Zookeeper version: 3.9.5
Latency min/avg/max: 0/0.3/12
Received: 7
Connections: 4
Outstanding: 0
Zxid: 0x10
Mode: standalone
Node count: 42
"""


def _partition(index: int, leader_id: int, replicas: tuple[int, ...], in_sync: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(index, leader_id, 0, replicas, in_sync, (), ErrorCode.NONE)


def _health(
    *partitions: PartitionInfo, live: tuple[int, ...] = (1, 2, 3), not_leading: tuple[int, ...] = ()
) -> ClusterHealth:
    brokers = {node_id: BrokerInfo(node_id, Address("127.0.0.1", 9091 + node_id), f"r{node_id}") for node_id in live}
    topic = TopicInfo("orders", uuid4(), False, {each.partition: each for each in partitions})
    stored = {
        node_id: {TopicPartition("orders", each.partition): StoredReplica(100, node_id) for each in partitions}
        for node_id in live
    }
    servers = [zookeeper_health("127.0.0.1:2181", SRVR)]
    return cluster_health(ClusterInfo("c1", 1, brokers), [topic], stored, servers, not_leading)


def test_cluster_with_all_replicas_in_sync_is_well() -> None:
    health = _health(_partition(0, 1, (1, 2, 3), (1, 2, 3)), _partition(1, 2, (2, 3, 1), (2, 3, 1)))
    assert health.is_well
    assert [each.leads_count for each in health.brokers] == [1, 1, 0]
    assert [each.size_bytes for each in health.brokers] == [200, 200, 200]
    assert [each.lag for each in health.brokers] == [2, 4, 6]
    text = "\n".join(health_text(health, 10))
    assert "1 topic, 2 partitions: 0 under-replicated, 0 without a leader, 0 not led" in text
    assert "standalone, latency min/avg/max 0/0.3/12, connections 4, outstanding 0, node count 42" in text


def test_leader_that_refuses_is_shown_as_none() -> None:
    health = _health(_partition(0, 3, (3, 2), (3, 2)), _partition(1, 2, (2, 3), (2, 3)), not_leading=(3,))
    assert (health.offline_count, health.is_well) == (1, False)
    assert [each.leads_count for each in health.brokers] == [0, 1, 0]
    # One without a leader has none that is not preferred.
    assert health.not_preferred_count == 0
    assert "orders-0  none" in "\n".join(health_text(health, 10))


def test_broker_that_is_assigned_but_not_registered_is_shown() -> None:
    health = _health(_partition(0, 3, (2, 3, 1), (3, 1)), live=(1, 3))
    assert not health.is_well
    assert [(each.node_id, each.is_live, each.out_of_sync_count) for each in health.brokers] == [
        (1, True, 0),
        (2, False, 1),
        (3, True, 0),
    ]
    assert health.not_preferred_count == 1
    text = "\n".join(health_text(health, 10))
    assert "2      -              -    0     1        1           -     -   not registered" in text
    assert "orders-0  3      2,3,1    3,1" in text


def test_partition_without_a_leader_is_offline_and_under_replicated() -> None:
    health = _health(_partition(0, -1, (1, 2, 3), (1,)), _partition(1, 1, (1, 2, 3), (1, 2)))
    assert health.offline_count == 1
    assert "2 under-replicated, 1 without a leader" in "\n".join(health_text(health, 10))
    assert "orders-0  none" in "\n".join(health_text(health, 10))


def test_of_many_unhealthy_partitions_some_are_listed_and_the_rest_counted() -> None:
    health = _health(*(_partition(index, 1, (1, 2), (1,)) for index in range(7)))
    text = "\n".join(health_text(health, 5))
    assert text.count("orders-") == 5
    assert "... and 2 more" in text


def test_broker_that_does_not_answer_is_a_problem() -> None:
    info = ClusterInfo("c1", 1, {1: BrokerInfo(1, Address("127.0.0.1", 9092), None)})
    health = cluster_health(info, [], {1: "127.0.0.1:9092 did not answer in time"}, [])
    assert not health.is_well
    assert "did not answer in time" in "\n".join(health_text(health, 1))


def test_zookeeper_that_is_silent_or_closed_to_words_says_so() -> None:
    assert zookeeper_health("z:2181", "") == ZooKeeperHealth("z:2181", problem="it does not answer")
    refused = zookeeper_health("z:2181", "srvr is not executed because it is not in the whitelist.\n")
    assert refused.problem == "srvr is not executed because it is not in the whitelist."
    waiting = zookeeper_health("z:2181", "This ZooKeeper instance is not currently serving requests\n")
    assert waiting.problem == "This ZooKeeper instance is not currently serving requests"


def test_object_for_json_has_everything_that_the_text_has() -> None:
    shown = json.loads(json.dumps(health_object(_health(_partition(0, -1, (1, 2, 3), (1,))))))
    assert (shown["is_well"], shown["offline_count"], shown["under_replicated"][0]["is_offline"]) == (False, 1, True)
    assert shown["zookeeper"][0]["mode"] == "standalone"
    assert [each["node_id"] for each in shown["brokers"]] == [1, 2, 3]

"""What doctor says of a cluster's ZooKeeper, tree and topics."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.cli.cluster.health import zookeeper_health
from ottla.cli.doctor.cluster import (
    directory_findings,
    network_findings,
    server_findings,
    timeout_findings,
    topic_findings,
    tree_findings,
)
from ottla.cli.doctor.findings import Finding, Severity
from ottla.client.wire.address import Address
from ottla.client.wire.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from ottla.coordination.broker_registry import BrokerListener, BrokerRegistration
from ottla.coordination.zookeeper.access import ConnectString
from ottla.coordination.zookeeper.inspection import SeenBroker, TreeInspection
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId

SRVR = "Zookeeper version: 3.9.3-c26634f, built on x\nLatency min/avg/max: 0/{average}/12\nMode: {mode}\n"


def server(mode: str = "follower", average: float = 0.4) -> str:
    return SRVR.format(mode=mode, average=average)


def said(findings: list[Finding]) -> list[tuple[Severity, str]]:
    return [(each.level, each.text) for each in findings]


def levels(findings: list[Finding]) -> list[str]:
    return [each.level.value for each in findings]


def test_server_tells_its_mode_version_and_latency() -> None:
    health = [zookeeper_health("zk1:2181", server("leader"))]
    assert said(list(server_findings(health))) == [
        (Severity.OK, "zk1:2181: leader, version 3.9.3-c26634f, latency min/avg/max ms 0/0.4/12")
    ]


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ("", "problem"),
        ("This ZooKeeper instance is not currently serving requests\n", "problem"),
        ("srvr is not executed because it is not in the whitelist.\n", "warning"),
        (server(average=80.5), "warning"),
    ],
)
def test_server_that_is_away_or_slow_is_told(answer: str, level: str) -> None:
    health = [zookeeper_health("zk1:2181", server()), zookeeper_health("zk2:2181", answer)]
    assert levels(list(server_findings(health))) == ["ok", level]


def test_server_by_itself_is_warned_of() -> None:
    assert levels(list(server_findings([zookeeper_health("zk1:2181", server("standalone"))]))) == ["ok", "warning"]


@pytest.mark.parametrize(
    ("timeout_ms", "level"), [(4_000, "ok"), (40_000, "ok"), (3_999, "warning"), (40_001, "warning")]
)
def test_session_timeout_is_compared_with_what_the_server_grants(timeout_ms: int, level: str) -> None:
    conf = "clientPort=2181\nminSessionTimeout=4000\nmaxSessionTimeout=40000\n"
    assert levels(list(timeout_findings({"zk1:2181": conf, "silent:2181": ""}, timeout_ms))) == [level]


def broker(node_id: int, ahead_ms: int = 3) -> SeenBroker:
    listener = BrokerListener("PLAINTEXT", "PLAINTEXT", f"broker-{node_id}.example", 9092)
    return SeenBroker(BrokerRegistration(NodeId(node_id), (listener,)), ahead_ms)


def tree(*ahead_ms: int, open_paths: list[str] | None = None, cluster_id: str | None = "c") -> TreeInspection:
    brokers = {NodeId(number): broker(number, ms) for number, ms in enumerate(ahead_ms, 1)}
    return TreeInspection(cluster_id, brokers, open_paths or [])


def test_tree_without_a_cluster_is_warned_of() -> None:
    assert levels(list(tree_findings(tree(cluster_id=None), has_digest=False))) == ["warning"]


def test_cluster_without_brokers_is_a_problem() -> None:
    assert levels(list(tree_findings(tree(), has_digest=False))) == ["ok", "problem"]


def test_clocks_are_compared_as_of_the_registrations() -> None:
    assert said(list(tree_findings(tree(-900, 1_000), has_digest=False)))[-1] == (
        Severity.OK,
        "the brokers' clocks were 1900 ms apart when they registered",
    )
    level, text = said(list(tree_findings(tree(-4, 3_000), has_digest=False)))[-1]
    assert level is Severity.WARNING
    assert "broker 1: -4 ms, broker 2: +3000 ms" in text


@pytest.mark.parametrize(("has_digest", "level"), [(True, "problem"), (False, "warning")])
def test_tree_that_anybody_may_change_is_told(has_digest: bool, level: str) -> None:
    assert levels(list(tree_findings(tree(0, open_paths=["/changes"]), has_digest=has_digest))) == ["ok", level]


def test_open_tree_below_an_authorizer_is_a_problem() -> None:
    seen = tree(0, open_paths=["/", "/changes", "/acls", "/config"])
    _, found = tree_findings(seen, has_digest=False, has_authorizer=True)
    assert found.level is Severity.PROBLEM
    assert "the authorizer protects nothing" in found.text
    assert "ottla cluster protect" in (found.advice or "")
    _, found = tree_findings(seen, has_digest=True, has_authorizer=True)
    assert "/, /changes, /acls and 1 more" in found.text


def test_password_that_crosses_a_network_without_tls_is_warned_of() -> None:
    [found] = network_findings(ConnectString.parse("zk1:2181,127.0.0.1:2181"), has_tls=False, has_digest=True)
    assert found.level is Severity.WARNING
    assert "no TLS to zk1: everyone on the network reads and changes its password" in found.text
    assert not list(network_findings(ConnectString.parse("localhost:2181"), has_tls=False, has_digest=True))
    [found] = network_findings(ConnectString.parse("zk1:2281"), has_tls=True, has_digest=True)
    assert found.level is Severity.OK


@pytest.mark.parametrize(
    ("identity", "found"),
    [
        ({"cluster.id": "c"}, ["ok"]),
        ({"cluster.id": "other"}, ["problem"]),
        ({}, []),
    ],
)
def test_directory_is_compared_with_the_cluster(identity: dict[str, str], found: list[str]) -> None:
    assert levels(list(directory_findings(tree(0), 1, identity))) == found


def cluster(*node_ids: int) -> ClusterInfo:
    brokers = {each: BrokerInfo(each, Address(f"b{each}", 9092), None) for each in node_ids}
    return ClusterInfo("c", -1, brokers)


def topic(name: str, *partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicInfo:
    """Partitions by leader, replicas and replicas in sync."""
    return TopicInfo(
        name,
        UUID(int=1),
        False,
        {
            index: PartitionInfo(index, leader, 1, replicas, in_sync, (), ErrorCode.NONE)
            for index, (leader, replicas, in_sync) in enumerate(partitions)
        },
    )


ALL = (1, 2, 3)


def test_cluster_that_is_well_has_one_line() -> None:
    found = list(topic_findings(cluster(*ALL), [topic("t", (1, ALL, ALL), (2, (2, 3, 1), ALL))], {}))
    assert said(found) == [(Severity.OK, "1 topic, 2 partitions: all led, all replicas in sync")]


def test_partitions_that_are_offline_below_min_isr_and_under_replicated_are_named() -> None:
    topics = [topic("t", (-1, ALL, (2,)), (1, ALL, (1, 2)), (1, ALL, (1,)))]
    found = list(topic_findings(cluster(1, 2, 3), topics, {"t": 2}))
    assert [(each.level.value, each.text) for each in found] == [
        ("problem", "without a leader: t-0"),
        ("problem", "below min.insync.replicas, so acks=all is refused: t-2"),
        ("warning", "under-replicated: t-1, t-2"),
    ]


def test_topics_with_one_replica_or_more_than_there_are_brokers_are_named() -> None:
    topics = [topic("one", (1, (1,), (1,))), topic("three", (1, ALL, ALL))]
    texts = [each.text for each in topic_findings(cluster(1, 2), topics, {})]
    assert texts[1:] == [
        "topics with one replica: one",
        "topics with more replicas than there are live brokers (2): three",
    ]
    assert len(list(topic_findings(cluster(1), topics[:1], {}))) == 1, "a standalone broker has no other choice"


def test_leaders_that_strayed_and_a_broker_that_leads_too_many_are_told() -> None:
    led = [(1, ALL, ALL)] * 16 + [(3, (2, 3, 1), ALL)] * 2
    texts = [each.text for each in topic_findings(cluster(*ALL), [topic("t", *led)], {})]
    assert texts[1:] == [
        "2 of 18 partitions are not led by their preferred replica",
        "broker 1 leads 16 of 18 partitions, 6 would be its share",
    ]

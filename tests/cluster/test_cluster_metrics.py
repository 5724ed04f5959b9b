"""`/metrics` and `/readyz` of three brokers when one of them dies, and when ZooKeeper does not answer."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from ottla.testing.broker import RunningBroker
from ottla.testing.cluster import RunningCluster
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

SETTINGS = {"zookeeper.session.timeout.ms": "2000"}
PARTITIONS_COUNT = 6


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    with (
        skips_without_zookeeper(),
        RunningCluster(settings=SETTINGS, serves_metrics=True, has_zookeeper=True) as running,
    ):
        yield running


def get(broker: RunningBroker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(broker.admin_url + path, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def total(cluster: RunningCluster, name: str) -> float:
    """The sum over all brokers that run."""
    values = [
        float(line.rpartition(" ")[2])
        for broker in cluster.brokers.values()
        if broker.is_running
        for line in get(broker, "/metrics")[1].splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    ]
    assert values, f"there is no {name}"
    return sum(values)


def test_death_and_return_of_a_broker_show_in_the_metrics_of_the_others(cluster: RunningCluster) -> None:
    with Cluster(cluster.bootstrap) as client:
        Admin(client).create_topic("figures", PARTITIONS_COUNT, 3)
    cluster.wait_until_replicated()
    # A broker whose lease is over, on a machine under load, leads no partition for a moment.
    eventually(lambda: total(cluster, "kafka_server_replicamanager_leadercount"), lambda n: n == PARTITIONS_COUNT)
    assert total(cluster, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert total(cluster, "kafka_brokers") == 9
    cluster.broker(2).kill()
    eventually(
        lambda: total(cluster, "kafka_server_replicamanager_underreplicatedpartitions"),
        lambda count: count == PARTITIONS_COUNT,
    )
    assert total(cluster, "kafka_server_replicamanager_leadercount") == PARTITIONS_COUNT
    assert total(cluster, "ottla_elections_total") >= 1
    eventually(lambda: total(cluster, "kafka_brokers"), lambda count: count == 4)
    cluster.broker(2).start()
    cluster.wait_until_replicated()
    eventually(
        lambda: total(cluster, "kafka_server_replicamanager_underreplicatedpartitions"), lambda count: count == 0
    )
    assert total(cluster, "kafka_server_replicamanager_isrexpands_total") >= PARTITIONS_COUNT


def test_broker_without_zookeeper_is_not_ready_but_alive(cluster: RunningCluster) -> None:
    broker = cluster.broker(1)
    assert get(broker, "/readyz") == (200, "ok\n")
    cluster.zookeeper.pause()
    try:
        _, text = eventually(lambda: get(broker, "/readyz"), lambda answer: answer[0] == 503)
        assert "ZooKeeper" in text
        assert get(broker, "/healthz") == (200, "ok\n")
    finally:
        cluster.zookeeper.resume()
    assert eventually(lambda: get(broker, "/readyz"), lambda answer: answer[0] == 200)

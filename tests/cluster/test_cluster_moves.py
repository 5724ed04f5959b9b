"""`ottla cluster plan`, `rebalance` and `drain` as an operator runs them, while records are written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.testing.cluster import RunningCluster
from tests.cluster.test_rolling_restart import TOPIC, Load
from tests.cluster.traffic import consume, make_topic
from tests.eventually import eventually
from tests.zookeeper_or_skip import skips_without_zookeeper

ENDS_WITHIN_S = 120

pytestmark = pytest.mark.slow


def ottla(cluster: RunningCluster, *arguments: str, status: int = 0) -> str:
    verb, *others = arguments
    command = [sys.executable, "-m", "ottla", "cluster", verb, "-b", cluster.bootstrap, *others]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def counts(cluster: RunningCluster) -> dict[int, int]:
    """How many replicas each broker has."""
    found = Counter(node for topic in cluster.topics() for each in topic.partitions.values() for node in each.replicas)
    return {node_id: found[node_id] for node_id in cluster.brokers}


def ongoing(cluster: RunningCluster) -> int:
    with Cluster(cluster.bootstrap) as client:
        return len(Admin(client).list_reassignments())


def own_settings(cluster: RunningCluster) -> set[str]:
    """The throttles that are set, of brokers and of the topic."""
    with Cluster(cluster.bootstrap) as client:
        admin = Admin(client)
        resources = [ConfigResource(ResourceType.BROKER, str(node_id)) for node_id in cluster.brokers]
        resources.append(ConfigResource(ResourceType.TOPIC, TOPIC))
        entries = [entry for resource in resources for entry in admin.describe_configs(resource).values()]
        return {
            entry.name for entry in entries if "throttled" in entry.name and entry.value not in ("", str(2**63 - 1))
        }


def test_replicas_are_planned_spread_and_drained_under_load(has_zookeeper: bool) -> None:
    with skips_without_zookeeper():
        running = RunningCluster(3, has_zookeeper=has_zookeeper)
    try:
        running.start()
        make_topic(running.bootstrap, TOPIC, partitions=6, replicas=2, config={"min.insync.replicas": "1"})
        load = Load(running.bootstrap)
        eventually(lambda: len(load.acknowledged) > 100)
        assert "Nothing to move" in ottla(running, "plan")
        assert "is not in the cluster" in ottla(running, "drain", "9", status=2)

        drained = ottla(running, "drain", "3")
        assert "4 moves under way" in drained
        assert "4 of 4 partitions moved" in drained
        assert counts(running) == {1: 6, 2: 6, 3: 0}
        assert "Nothing to move" in ottla(running, "drain", "3")

        planned = json.loads(ottla(running, "plan", "--json"))
        assert planned["version"] == 1
        assert sum(3 in each["replicas"] for each in planned["partitions"]) == 4
        assert counts(running) == {1: 6, 2: 6, 3: 0}, "a plan changes nothing"

        ottla(running, "rebalance", "--throttle", "1", "--no-wait")
        assert ongoing(running) > 0
        assert "follower.replication.throttled.rate" in own_settings(running)
        assert "already under way" in ottla(running, "rebalance", status=1)
        assert "ended " in ottla(running, "rebalance", "--cancel")
        assert ongoing(running) == 0
        assert own_settings(running) == set()

        assert "bytes" in ottla(running, "rebalance", "--throttle", "50000000")
        assert counts(running) == {1: 4, 2: 4, 3: 4}
        assert own_settings(running) == set()
        load.stop()
        assert load.errors == []
        found = consume(running.bootstrap, TOPIC, len(load.acknowledged), "readers")
        assert sorted(map(int, found)) == sorted(load.acknowledged)
    finally:
        running.close()

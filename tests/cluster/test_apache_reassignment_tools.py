"""The tools of Apache Kafka that move replicas and leaders, against four brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.admin.admin import Admin
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.wire.cluster import Cluster
from ottla.testing.cluster import RunningCluster
from tests.cluster.traffic import make_topic, produce
from tests.peers.java_tool import LEADER_ELECTION_COMMAND, REASSIGN_PARTITIONS_COMMAND, TOPIC_COMMAND, run_tool
from tests.peers.kafka_jars import KafkaUnavailable
from tests.zookeeper_or_skip import skips_without_zookeeper

TOPIC = "orders"
RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with skips_without_zookeeper(), RunningCluster(4, has_zookeeper=has_zookeeper) as running:
        yield running


def run(cluster: RunningCluster, main_class: str, *arguments: str) -> str:
    """A tool's output; it must succeed."""
    try:
        done = run_tool(main_class, "--bootstrap-server", cluster.bootstrap, *arguments)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def plan(path: Path, replicas: list[list[int]]) -> str:
    partitions = [{"topic": TOPIC, "partition": index, "replicas": nodes} for index, nodes in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def replicas_of(cluster: RunningCluster) -> list[list[int]]:
    (topic,) = [each for each in cluster.topics() if each.name == TOPIC]
    return [list(topic.partitions[index].replicas) for index in sorted(topic.partitions)]


def throttles(cluster: RunningCluster) -> tuple[dict[int, str | None], str | None]:
    """The rate of each broker, and the topic's list of throttled replicas."""
    with Cluster(cluster.bootstrap) as client:
        admin = Admin(client)
        rates = {
            node_id: admin.describe_configs(ConfigResource(ResourceType.BROKER, str(node_id)), [RATE])[RATE].value
            for node_id in cluster.brokers
        }
        return rates, admin.describe_configs(ConfigResource(ResourceType.TOPIC, TOPIC), [REPLICAS])[REPLICAS].value


def test_replicas_are_moved_verified_and_moved_back_by_the_tools(cluster: RunningCluster, tmp_path: Path) -> None:
    make_topic(cluster.bootstrap, TOPIC, partitions=2, replicas=2)
    first = plan(tmp_path / "first.json", [[1, 2], [2, 1]])
    run(cluster, REASSIGN_PARTITIONS_COMMAND, "--reassignment-json-file", first, "--execute")
    cluster.wait_for(TOPIC, lambda: replicas_of(cluster), lambda seen: seen == [[1, 2], [2, 1]])
    values = [f"{number} " + "x" * 10_000 for number in range(400)]
    # Without sticky partitioning, which may leave a partition empty.
    produce(cluster.bootstrap, TOPIC, values, compression_type="none", sticky_partitioning_linger_ms=0)

    # 4 MB at 20 kB/s take long enough to observe the move.
    second = plan(tmp_path / "second.json", [[3, 4], [4, 3]])
    executed = run(
        cluster, REASSIGN_PARTITIONS_COMMAND, "--reassignment-json-file", second, "--execute", "--throttle", "20000"
    )
    assert f"Successfully started partition reassignments for {TOPIC}-0,{TOPIC}-1" in executed
    rates, throttled = throttles(cluster)
    assert set(rates.values()) == {"20000"}
    assert set((throttled or "").split(",")) == {"0:3", "0:4", "1:3", "1:4"}
    listed = run(cluster, REASSIGN_PARTITIONS_COMMAND, "--list")
    assert re.search(rf"{TOPIC}-0: replicas: 3,4,1,2. adding: 3,4. removing: 1,2.", listed)
    described = run(cluster, TOPIC_COMMAND, "--describe", "--topic", TOPIC)
    assert "Adding Replicas: 3,4\tRemoving Replicas: 1,2" in described
    cancelled = run(cluster, REASSIGN_PARTITIONS_COMMAND, "--reassignment-json-file", second, "--cancel")
    assert f"Successfully cancelled partition reassignments for: {TOPIC}-0,{TOPIC}-1" in cancelled
    assert [set(nodes) for nodes in replicas_of(cluster)] == [{1, 2}, {1, 2}]

    run(
        cluster, REASSIGN_PARTITIONS_COMMAND, "--reassignment-json-file", second, "--execute", "--throttle", "100000000"
    )
    cluster.wait_for(TOPIC, lambda: replicas_of(cluster), lambda seen: seen == [[3, 4], [4, 3]])
    verified = run(cluster, REASSIGN_PARTITIONS_COMMAND, "--reassignment-json-file", second, "--verify")
    for index in (0, 1):
        assert f"Reassignment of partition {TOPIC}-{index} is completed." in verified
    rates, throttled = throttles(cluster)
    assert set(rates.values()) == {str(2**63 - 1)}
    assert not throttled


def test_preferred_leaders_are_elected_by_the_tool(cluster: RunningCluster, tmp_path: Path) -> None:
    name = "led"
    make_topic(cluster.bootstrap, name, partitions=1, replicas=3)
    partition = cluster.partition(name, 0)
    assert partition is not None
    preferred, other = partition.replicas[:2]
    path = tmp_path / "reordered.json"
    turned = [other, preferred, partition.replicas[2]]
    wanted = [{"topic": name, "partition": 0, "replicas": turned}]
    path.write_text(json.dumps({"version": 1, "partitions": wanted}))
    run(cluster, REASSIGN_PARTITIONS_COMMAND, "--reassignment-json-file", str(path), "--execute")
    elected = run(cluster, LEADER_ELECTION_COMMAND, "--election-type", "preferred", "--topic", name, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in elected
    assert cluster.leader_of(name, 0) == other
    described = run(cluster, TOPIC_COMMAND, "--describe", "--topic", name)
    assert f"Leader: {other}\tReplicas: {','.join(map(str, turned))}" in described

"""Apache Kafka's `kafka-acls` against a broker with an authorizer: what it adds, lists and removes is what we see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.admin.access import delete_acls, describe_acls
from ottla.client.wire.cluster import Cluster
from ottla.security.acl import AclFilter
from ottla.testing.broker import RunningBroker
from tests.peers.java_tool import ACL_COMMAND, run_tool
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = pytest.mark.interop

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    with RunningBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def cluster(guarded: RunningBroker) -> Iterator[Cluster]:
    with Cluster(guarded.bootstrap) as opened:
        yield opened
        delete_acls(opened, [AclFilter()])


def kafka_acls(broker: RunningBroker, *arguments: str) -> str:
    try:
        done = run_tool(ACL_COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def texts(cluster: Cluster) -> set[str]:
    return {str(acl) for acl in describe_acls(cluster, AclFilter())}


def test_the_tools_producer_and_consumer_rules_are_added_listed_and_removed(
    guarded: RunningBroker, cluster: Cluster
) -> None:
    kafka_acls(guarded, "--add", "--allow-principal", "User:ada", "--producer", "--topic", "orders")
    prefixed = ("--resource-pattern-type", "prefixed")
    kafka_acls(
        guarded,
        "--add",
        "--allow-principal",
        "User:bob",
        "--allow-host",
        "10.0.0.1",
        "--consumer",
        "--topic",
        "ord",
        "--group",
        "g",
        *prefixed,
    )
    of_ada = {f"Allow {operation} on Topic orders to User:ada from *" for operation in ("Write", "Describe", "Create")}
    of_bob = {
        "Allow Read on Topic ord* to User:bob from 10.0.0.1",
        "Allow Describe on Topic ord* to User:bob from 10.0.0.1",
        "Allow Read on Group g* to User:bob from 10.0.0.1",
    }
    assert texts(cluster) == of_ada | of_bob
    listed = kafka_acls(guarded, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert listed.count("principal=User:ada") == 3
    assert listed.count("principal=User:bob") == 2
    kafka_acls(guarded, "--remove", "--force", "--topic", "orders")
    assert texts(cluster) == of_bob

"""A schema registry beside each of three brokers: any of them may die, and no acknowledged schema is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from ottla.testing.cluster import RunningCluster
from tests.eventually import eventually
from tests.registry_process import ask
from tests.zookeeper_or_skip import skips_without_zookeeper

SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "schema.registry.listeners": "http://127.0.0.1:0",
    "schema.registry.topic.replication.factor": "3",
}


@pytest.fixture
def cluster(has_zookeeper: bool) -> Iterator[RunningCluster]:
    with skips_without_zookeeper(), RunningCluster(settings=SETTINGS, has_zookeeper=has_zookeeper) as running:
        yield running


def registered(url: str, subject: str) -> int | None:
    """The id; None while the registry finds no leader, or no writer."""
    status, made = ask(
        "POST", f"{url}/subjects/{subject}/versions", {"schema": f'{{"type":"fixed","name":"F","size":{len(subject)}}}'}
    )
    assert status in (200, 500), made
    return int(made["id"]) if status == 200 else None


def test_registries_continue_when_the_leader_of_their_topic_dies(cluster: RunningCluster) -> None:
    urls = {node_id: broker.schema_registry_url for node_id, broker in cluster.brokers.items()}
    for url in urls.values():
        assert eventually(partial(registered, url, "a")) == 1
    leader = cluster.leader_of("_schemas", 0)
    partition = cluster.partition("_schemas", 0)
    assert partition is not None
    assert len(partition.replicas) == 3
    cluster.broker(leader).kill()
    others = [url for node_id, url in urls.items() if node_id != leader]
    assert eventually(partial(registered, others[0], "bb")) == 2
    assert eventually(partial(registered, others[1], "ccc")) == 3
    for url in others:
        assert ask("GET", f"{url}/subjects") == (200, ["a", "bb", "ccc"])

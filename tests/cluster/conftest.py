"""Brokers that share a tree: a ZooKeeper for all files of a worker, and a chroot for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing.broker import RunningBroker
from tests.run_async import pytest_pyfunc_call
from tests.tree_fixtures import has_zookeeper
from tests.zookeeper_fixtures import connect, zookeeper

__all__ = ["connect", "has_zookeeper", "pytest_pyfunc_call", "zookeeper"]

Member = Callable[..., RunningBroker]


@pytest.fixture
def member(connect: str, tmp_path: Path) -> Iterator[Member]:
    """Starts broker N of the test's cluster; its directory is `broker-N` unless another is named."""
    running: list[RunningBroker] = []

    def start(node_id: int | None, directory: str | None = None, **settings: str) -> RunningBroker:
        given = {name.replace("_", "."): text for name, text in settings.items()}
        if node_id is not None:
            given["node.id"] = str(node_id)
        given.setdefault("zookeeper.connect", connect)
        broker = RunningBroker(tmp_path / (directory or f"broker-{node_id}"), settings=given)
        running.append(broker)
        return broker.start()

    yield start
    for broker in running:
        broker.close()

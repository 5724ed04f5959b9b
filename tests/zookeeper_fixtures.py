"""A ZooKeeper for all files of a worker, and a chroot for each test; a suite's conftest imports the fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from ottla.testing.zookeeper import RunningZooKeeper
from tests.zookeeper_or_skip import skips_without_zookeeper

_chroots = count(1)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[RunningZooKeeper]:
    """Tests that stop their server have a separate one."""
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        yield running


@pytest.fixture
def connect(zookeeper: RunningZooKeeper) -> str:
    """A connect string with an unused chroot, which has no parent: a test that closes its own does not close others."""
    return f"{zookeeper.connect}/test-{next(_chroots)}"

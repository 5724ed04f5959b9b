"""The homes that every contract test runs against."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from ottla.testing.zookeeper import RunningZooKeeper
from tests.contract.tree_homes import EmbeddedTreeHome, TreeHome, ZooKeeperTreeHome
from tests.run_async import pytest_pyfunc_call
from tests.zookeeper_or_skip import skips_without_zookeeper

__all__ = ["pytest_pyfunc_call"]

_chroots = count(1)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[RunningZooKeeper]:
    """One server for all tests of this worker.  Those that stop it have one of their own."""
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        yield running


@pytest.fixture
def connect(zookeeper: RunningZooKeeper) -> str:
    """A connect string with a chroot that nobody used before."""
    return f"{zookeeper.connect}/test/{next(_chroots)}"


@pytest.fixture(params=["embedded", "zookeeper"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> TreeHome:
    """A home with an empty tree; `request.param` names it."""
    if request.param == "embedded":
        return EmbeddedTreeHome(tmp_path / "tree.sqlite")
    return ZooKeeperTreeHome(request.getfixturevalue("connect"))

"""The homes that every contract test runs against."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.tree_backends import EmbeddedTreeBackend, LocalTreeBackend, TreeBackend, ZooKeeperTreeBackend
from tests.run_async import pytest_pyfunc_call
from tests.zookeeper_fixtures import connect, zookeeper

__all__ = ["connect", "pytest_pyfunc_call", "zookeeper"]


@pytest.fixture(params=["embedded", "local", "zookeeper"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> TreeBackend:
    """A home with an empty tree; `request.param` names it."""
    if request.param == "embedded":
        return EmbeddedTreeBackend(tmp_path / "tree.sqlite")
    if request.param == "local":
        return LocalTreeBackend(tmp_path)
    return ZooKeeperTreeBackend(request.getfixturevalue("connect"))

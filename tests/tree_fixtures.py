"""Which tree the clusters of a file have: a conftest imports the fixture.

Tests that are not about ZooKeeper run with both; those with a ZooKeeper are in `./dev suites` (tests/long_suites.py).
"""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", params=[False, True], ids=["process_tree", "zookeeper_tree"])
def has_zookeeper(request: pytest.FixtureRequest) -> bool:
    """For `RunningCluster`."""
    return bool(request.param)

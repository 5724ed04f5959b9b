"""The checks of groups of connectors find members that break the rules, on real processes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.connectors.homes import Home, ZooKeeperHome
from tests.connectors.mutated_member import MUTATIONS
from tests.connectors.run import Size, run
from tests.zookeeper_or_skip import skips_without_zookeeper

# Members that have always something to hand out, and more when one of the two is stopped.
BUSY = Size(partitions_count=4, members_count=2, audit_count=0, herd_count=0, per_second=40.0)
WORK_MS = 10.0


def one_broker(directory: Path) -> Home:
    return ZooKeeperHome(directory, brokers_count=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_planted_fault_is_found_when_a_member_wakes_after_its_session(name: str) -> None:
    _, expected = MUTATIONS[name]
    command = (sys.executable, "-m", "tests.connectors.mutated_member", name)
    with skips_without_zookeeper():
        result = run(one_broker, ["pause-past-session"], seed=1, size=BUSY, command=command, work_ms=WORK_MS)
    if result.kept_directory is not None:
        shutil.rmtree(result.kept_directory)
    assert expected in result.verdict.found, f"{name} was not found: {result}"

"""The checks of groups of connectors find members that break the rules, on real processes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.connectors.homes import BrokerHome, Home, ZooKeeperBackend
from tests.connectors.run import Size, run
from tests.connectors.verdict import Wrong
from tests.zookeeper_or_skip import skips_without_zookeeper

# Members that always have messages to deliver, and more when one of the two is stopped.
BUSY = Size(partitions_count=4, members_count=2, audit_count=0, herd_count=0, per_second=40.0)
WORK_MS = 10.0
# A pause between two messages leaves none to deliver: such a run misses the fault, and the next has another seed.
SEEDS = range(1, 6)
MUTATED_MEMBER = (sys.executable, "-m", "tests.connectors.mutated_member")


def one_broker(directory: Path) -> Home:
    return ZooKeeperBackend(directory, brokers_count=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_home", "expected"),
    [(one_broker, {Wrong.NOT_OWNED, Wrong.NOT_FENCED}), (BrokerHome, {Wrong.DUPLICATE})],
    ids=["zookeeper", "broker"],
)
def test_members_that_ignore_lease_and_fence_are_found(
    make_home: Callable[[Path], Home], expected: frozenset[Wrong]
) -> None:
    """One is stopped past its session, and has messages left when it resumes."""
    missed: list[str] = []
    for seed in SEEDS:
        with skips_without_zookeeper():
            result = run(
                make_home, ["pause-past-session"], seed=seed, size=BUSY, command=MUTATED_MEMBER, work_ms=WORK_MS
            )
        if result.kept_directory is not None:
            shutil.rmtree(result.kept_directory)
        if expected <= result.verdict.found:
            return
        missed.append(str(result))
    pytest.fail("\n".join(missed))

"""Groups of connectors on ZooKeeper through changes of all kinds: the short form of `./dev chaos connectors`."""

from __future__ import annotations

import secrets

import pytest

from tests.connectors.homes import ZooKeeperBackend
from tests.connectors.run import SHORT, run
from tests.zookeeper_or_skip import skips_without_zookeeper

PLAN = ("herd", "pause-past-session", "kill", "reset-offsets", "grow", "restart-zookeeper", "kill-broker")


@pytest.mark.slow
def test_groups_on_zookeeper_keep_their_guarantees() -> None:
    # A fresh random seed: it determines members and pauses.
    seed = secrets.randbelow(1 << 31)
    with skips_without_zookeeper():
        result = run(ZooKeeperBackend, PLAN, seed=seed, size=SHORT)
    told = f"seed={seed} {' '.join(PLAN)}\n{result}"
    print(told)  # noqa: T201  the seed is a result, too
    assert result.is_clean, told
    assert sum(result.strikes.values()) == len(PLAN), told

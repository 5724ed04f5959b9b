"""Groups of connectors on ZooKeeper through changes of all kinds: the short form of `./dev chaos connectors`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import pytest

from tests.connectors.homes import ZooKeeperBackend
from tests.connectors.run import SHORT, run
from tests.zookeeper_or_skip import skips_without_zookeeper

ALL_CHANGES = ("herd", "pause-past-session", "kill", "reset-offsets", "grow", "restart-zookeeper", "kill-broker")
KILLS = ("kill", "restart-zookeeper")


@pytest.mark.slow
@pytest.mark.parametrize("plan", [pytest.param(ALL_CHANGES, id="all-changes"), pytest.param(KILLS, id="kills")])
def test_groups_on_zookeeper_keep_their_guarantees(plan: Sequence[str]) -> None:
    # A fresh random seed: it determines members and pauses.
    seed = secrets.randbelow(1 << 31)
    with skips_without_zookeeper():
        result = run(ZooKeeperBackend, plan, seed=seed, size=SHORT)
    told = f"seed={seed} {' '.join(plan)}\n{result}"
    print(told)  # noqa: T201  the seed is a result, too
    assert result.is_clean, told
    assert sum(result.strikes.values()) == len(plan), told

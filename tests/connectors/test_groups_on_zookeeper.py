"""Groups of connectors on ZooKeeper through changes of all kinds: the short form of `./dev chaos connectors`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.connectors.homes import ZooKeeperBackend
from tests.connectors.run import SHORT, Size, run
from tests.zookeeper_or_skip import skips_without_zookeeper

ALL_CHANGES = ("herd", "pause-past-session", "kill", "reset-offsets", "grow", "restart-zookeeper", "kill-broker")
# A restart of ZooKeeper is in tests/contract/test_tree_membership.py, too.
KILLS = ("kill",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "size"),
    [
        pytest.param(ALL_CHANGES, SHORT, id="all-changes"),
        # In `./dev test`: half the load.
        pytest.param(KILLS, replace(SHORT, per_second=SHORT.per_second / 2), id="kills"),
    ],
)
def test_groups_on_zookeeper_keep_their_guarantees(plan: Sequence[str], size: Size) -> None:
    # A fresh random seed: it determines members and pauses.
    seed = secrets.randbelow(1 << 31)
    with skips_without_zookeeper():
        result = run(ZooKeeperBackend, plan, seed=seed, size=size)
    told = f"seed={seed} {' '.join(plan)}\n{result}"
    print(told)  # noqa: T201  the seed is a result, too
    assert result.is_clean, told
    assert sum(result.strikes.values()) == len(plan), told

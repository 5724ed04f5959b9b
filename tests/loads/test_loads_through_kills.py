"""Loads are killed where it matters, and each offset is in the table once; `./dev chaos loads` is the long form."""

from __future__ import annotations

import pytest

from tests.loads.child import DRIVER, EXECUTOR
from tests.loads.kills import run_points

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("table", ["delta-local", "iceberg-local"])
def test_a_driver_that_is_killed_between_write_and_commit_or_after_it_loads_nothing_twice(table: str) -> None:
    outcome = run_points(table, 1, points=("before commit", "after commit"), victims=(DRIVER,))
    assert outcome.kills.total() == 2
    assert not outcome.problems, str(outcome)


@pytest.mark.parametrize("table", ["delta-s3", "iceberg-local"])
def test_workers_that_are_killed_at_every_point_lose_and_repeat_nothing(table: str) -> None:
    outcome = run_points(table, 1, victims=(EXECUTOR,))
    assert outcome.kills.total() == 4
    assert not outcome.problems, str(outcome)

"""Loads are killed at critical points, and each offset is in the table once; `./dev chaos loads` is the long form."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.loads.kills import POINTS, Driver, kill_driver, kill_worker_of_second_load, kill_workers, load, sites

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_loads_whose_workers_and_drivers_are_killed_lose_and_repeat_nothing() -> None:
    """One test, since a driver takes long to start: three of them are enough for all."""
    with sites("delta-s3", "delta-local", "iceberg-local") as (s3, delta, iceberg), ExitStack() as stack:
        first, second = (stack.enter_context(Driver(delta.folder)) for _ in range(2))
        for here in (s3, iceberg):
            for point in POINTS:
                kill_workers(first, here, point)
                assert not here.problems(), f"{here.table.name}, workers killed {point}"

        # The first has its commit: the second started before, and is refused, although its tasks are repeated.
        refused = kill_worker_of_second_load(first, second, delta, "after commit")
        assert "another load of these topics was committed meanwhile" in str(refused)
        assert not delta.problems(), "a worker of a second load killed"

        kill_driver(first, [delta, iceberg], "before commit")
        third = stack.enter_context(Driver(delta.folder))
        kill_driver(second, [delta, iceberg], "after commit")
        load(third, delta, iceberg)
        assert not delta.problems(), "drivers killed"
        assert not iceberg.problems(), "drivers killed"


def test_upserts_whose_workers_and_drivers_are_killed_leave_the_rows_that_a_fold_leaves() -> None:
    with sites("delta-local-upserts", "iceberg-local-upserts") as (delta, iceberg), ExitStack() as stack:
        first, second, third = (stack.enter_context(Driver(delta.folder)) for _ in range(3))
        for here in (delta, iceberg):
            for point in here.points:
                kill_workers(first, here, point)
                assert not here.problems(), f"{here.table.name}, workers killed {point}"
        kill_driver(first, [delta, iceberg], "before applying")
        kill_driver(second, [delta, iceberg], "after commit")
        load(third, delta, iceberg)
        assert not delta.problems(), "drivers killed"
        assert not iceberg.problems(), "drivers killed"

"""A load whose driver is killed, and one whose worker is: the tests' own session loads the rest, each offset once.

tests/loads has more points and tables.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ottla.spark.lake import LakeError, plans
from ottla.spark.lake.tasks import Stage
from tests.loads.child import EXECUTOR, ROWS_PER_TASK, loader_of
from tests.loads.kills import Driver, kill_driver, sites

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_load_whose_driver_and_then_a_worker_is_killed_loses_and_repeats_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "ROWS_PER_TASK_MIN", ROWS_PER_TASK)
    with sites("delta-local", "iceberg-local", "delta-local-upserts") as places:
        with Driver(places[0].folder) as driver:
            kill_driver(driver, places, "after commit")
        for here in places:
            here.produce()
            kill = {"mark": "worker", "who": EXECUTOR, "stage": Stage.TASK_WROTE}
            # This session runs no task twice.
            with pytest.raises(LakeError, match="a task failed, nothing of it was committed"):
                loader_of(spark, here.command(kill=kill)).load()
            assert here.killed("worker") == 1
            loader_of(spark, here.command()).load()
            assert not here.problems(), here.table.name

"""Spark's exactly-once sink on three brokers: a leader, a coordinator, the workers and the driver are killed."""

from __future__ import annotations

import pytest

from tests.sink.kills import COORDINATOR, DRIVER, LEADER, WORKERS, run
from tests.zookeeper_or_skip import skips_without_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.interop]


def test_each_record_is_written_once_through_kills_of_brokers_workers_and_the_driver() -> None:
    pytest.importorskip("pyspark")
    with skips_without_zookeeper():
        outcome = run({LEADER: 1, COORDINATOR: 1, WORKERS: 1, DRIVER: 1}, seed=1)
    print(outcome, *outcome.stops, sep="\n")  # noqa: T201  the counts are the result
    assert outcome.problems == [], str(outcome)
    assert outcome.records_count > 1_000
    assert outcome.kills.total() == 4

"""Spark's queries and batch reads by Ottla's and Spark's sources while a leader and the group's coordinator are killed.

The output equals the input (tests/history/reading_spark.py lists the paths), and no query fails.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.chaos_run import ClusterResult, run_cluster
from tests.history.clients import LIBRDKAFKA, PARTITIONS_COUNT, RANGE, ReaderKind
from tests.interop.clients.spark_connector import connector_jars
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable
from tests.zookeeper_or_skip import skips_without_zookeeper

SEED: Final = 2013
RUNS_WITHIN_S: Final = 600
PLAN: Final = ("kill-leader", "kill-coordinator")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.interop,
    pytest.mark.timeout(BROUGHT_WITHIN_S + RUNS_WITHIN_S),
]


def jars_of_the_connector() -> list[Path] | str:
    """The jars, or why they are unavailable."""
    try:
        return connector_jars()
    except (KafkaUnavailable, PeerUnavailable) as reason:
        return f"Spark's Kafka connector is not available: {reason}"


@pytest.fixture(scope="module")
def kills_under_spark() -> ClusterResult:
    pytest.importorskip("pyspark")
    jars = jars_of_the_connector()
    sources, listed = ("ottla", "") if isinstance(jars, str) else ("ottla,kafka", ",".join(map(str, jars)))
    spark = ReaderKind("spark", (sys.executable, "-m", "tests.history.reading_spark", sources, listed))
    with skips_without_zookeeper():
        result = run_cluster(RANGE, PLAN, seed=SEED, producers=[LIBRDKAFKA], readers=[spark])
    print(result)  # noqa: T201  the counts are the result
    assert result.is_clean, str(result)
    assert sum(result.strikes.values()) == len(PLAN)
    return result


@pytest.mark.parametrize("source", ["ottla", "kafka"])
def test_spark_reads_everything_once_through_kills_of_a_leader_and_of_the_coordinator(
    source: str, kills_under_spark: ClusterResult
) -> None:
    if source == "kafka" and isinstance(reason := jars_of_the_connector(), str):
        pytest.skip(reason)
    acknowledged = kills_under_spark.report.figures["sends_ok"]
    assert acknowledged > 1_000
    # The checker has found each of them in every snapshot; here it is shown that there were any.
    records = kills_under_spark.records
    assert records[f"reader0-spark.{source}-files"] == acknowledged
    assert records[f"reader0-spark.{source}-topic"] == acknowledged
    assert records[f"reader0-spark.{source}-batch"] > acknowledged
    assert kills_under_spark.report.figures["snapshots"] > 4 * PARTITIONS_COUNT

"""The long tests that `./dev test` leaves out and `./dev suites` runs: they get the mark `suite`.

Each has a shorter relative that stays in `./dev test`: the same mechanism on fewer cases, or the judgement alone.
tests/README.md shows this table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

SUITE_MARK: Final = "suite"


class LongSuite(NamedTuple):
    """`tests` and `stays` are starts of node ids, in which `*` is any text."""

    tests: tuple[str, ...]
    stays: tuple[str, ...]
    reason: str


LONG_SUITES: Final = (
    LongSuite(
        ("tests/interop/librdkafka/test_librdkafka.py::test_librdkafka_tests_pass_or_fail_as_listed",),
        (
            "tests/interop/test_confluent_kafka.py",
            "tests/interop/test_group_clients.py",
            "tests/interop/test_groups.py",
        ),
        "librdkafka's own suite of 116 jobs and its build; its client produces, fetches and joins groups in what stays",
    ),
    LongSuite(
        (
            "tests/integration/spark/test_lake_backfill.py::*apache-kafka",
            "tests/integration/spark/test_spark_lake.py::*apache-kafka",
            "tests/integration/spark/test_spark_options.py::*apache-kafka",
            "tests/integration/spark/test_spark_stream.py::*apache-kafka",
            "tests/integration/spark/test_spark_tasks.py::*apache-kafka",
        ),
        (
            "tests/integration/spark/test_spark_read.py::*apache-kafka",
            "tests/integration/spark/test_spark_sink.py::*apache-kafka",
        ),
        "the same cases run on Ottla; reading and writing are compared on both brokers",
    ),
    LongSuite(
        (
            "tests/peers/test_benchmark_clients.py::test_each_client_",
            "tests/peers/test_benchmark_clusters.py::test_topic_is_whole",
            "tests/peers/test_benchmark_clusters.py::test_partitions_are_not_led",
            "tests/peers/test_benchmark_clusters.py::test_groups_are_found",
            "tests/peers/test_benchmark_clusters.py::test_broker_that_was_killed",
            "tests/peers/test_raw_client.py::test_records_of_the_raw_client*[1-20]",
            "tests/peers/test_raw_client.py::test_records_of_the_raw_client*[4000-6]",
        ),
        (
            "tests/peers/test_benchmark_clients.py::test_paced_producer_stamps_each_message",
            "tests/peers/test_benchmark_clusters.py::test_requests_of_the_study",
            "tests/peers/test_raw_client.py::test_records_of_the_raw_client*[50-12]",
        ),
        "tests of the benchmarks with real clients and clusters; tables and judgements stay, and one case of each load",
    ),
    LongSuite(
        (
            "tests/cluster/test_short_chaos.py",
            "tests/cluster/test_cut_off_leaders.py::*[zookeeper]",
            "tests/cluster/test_cut_off_leaders.py::*[zookeeper-in]",
            "tests/cluster/test_cut_off_leaders.py::*[zookeeper-out]",
            "tests/cluster/test_moves_under_load.py::*[3]",
            "tests/cluster/test_spark_through_kills.py",
        ),
        (
            "tests/cluster/test_kills.py",
            "tests/cluster/test_cut_off_leaders.py::*[zookeeper-and-peers]",
            "tests/cluster/test_cut_off_leaders.py::*[paused]",
            "tests/cluster/test_moves_under_load.py::*[1]",
            "tests/integration/spark/test_stream_killed_at_its_start.py",
        ),
        "long chaos of three brokers: rounds of random faults, more kinds of the same cut, Spark as one more reader",
    ),
    LongSuite(
        (
            "tests/history/test_histories.py::test_kills*[range]",
            "tests/history/test_histories.py::test_kills*[cooperative-sticky]",
            "tests/history/test_histories.py::test_checker_notices",
        ),
        (
            "tests/history/test_histories.py::test_kills*[consumer-protocol]",
            "tests/history/test_checker.py",
            "tests/cluster/test_kills.py",
        ),
        "the kills run with one group protocol, with the others on three brokers; the checker is tested on histories",
    ),
    LongSuite(
        ("tests/kill/test_kill.py::test_kill_test_notices",),
        ("tests/kill/test_kill.py::test_kills_lose", "tests/history/test_checker.py"),
        "planted faults of a broker that is killed, to show that the test can fail",
    ),
    LongSuite(
        ("tests/connectors/test_planted_faults.py",),
        ("tests/connectors/test_checks.py", "tests/consumers_simulation/test_mutants.py"),
        "planted faults on real processes; the checks find the same faults in written journals and in the simulation",
    ),
    LongSuite(
        ("tests/mirror/test_stalled_mirror.py::test_judge_notices",),
        ("tests/mirror/test_stalled_mirror.py::test_judge_compares",),
        "a planted fault on real processes; the judge is tested on rows",
    ),
    LongSuite(
        (
            "tests/simulation/test_simulation.py::test_nothing_acknowledged_is_lost_in_fresh_seeds[60]",
            "tests/simulation/test_mutants.py::*[a replica that leaves keeps the leader epoch]",
            "tests/simulation/test_mutants.py::*[an eligible member freezes nothing]",
        ),
        (
            "tests/simulation/test_simulation.py::test_nothing_acknowledged_is_lost_in_fresh_seeds[15]",
            "tests/simulation/test_mutants.py::*[an election keeps the leader epoch]",
            "tests/simulation/test_mutants.py::*[a minimum that is not met freezes nothing]",
        ),
        "a longer search by the same simulation, and planted bugs that need hundreds of seeds",
    ),
    LongSuite(
        (
            "tests/integration/test_demo.py::test_interrupted_demo*[jobs -2.0]",
            "tests/integration/test_demo.py::test_interrupted_demo*[Spark loads-2.0]",
            "tests/integration/test_demo.py::test_demo_stopped_by_another_signal*[1-broker ]",
            "tests/integration/test_demo.py::test_demo_fails_at_once*[watching",
        ),
        (
            "tests/integration/test_demo.py::test_interrupted_demo*[the day -0.5]",
            "tests/integration/test_demo.py::test_interrupted_demo*[Spark finds-2.0]",
            "tests/integration/test_demo.py::test_demo_stopped_by_another_signal*[15-jobs ]",
            "tests/integration/test_demo.py::test_demo_fails_at_once*[ottla serve",
        ),
        "more moments, signals and victims of the same interruption of the demo",
    ),
)


def _matches(pattern: str, node_id: str) -> bool:
    return re.match(".*".join(map(re.escape, pattern.split("*"))), node_id) is not None


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


_LONG_BY_FILE: Final[dict[str, list[str]]] = {}
for _suite in LONG_SUITES:
    for _pattern in _suite.tests:
        _LONG_BY_FILE.setdefault(file_of(_pattern), []).append(_pattern)


def is_long(node_id: str) -> bool:
    return any(_matches(pattern, node_id) for pattern in _LONG_BY_FILE.get(file_of(node_id), ()))


def unmatched(node_ids: Sequence[str], suites: Sequence[LongSuite] = LONG_SUITES) -> list[str]:
    """The patterns without a test, and those of what stays that match only long tests."""
    short = [node_id for node_id in node_ids if not is_long(node_id)]
    return [
        pattern
        for suite in suites
        for patterns, candidates in ((suite.tests, node_ids), (suite.stays, short))
        for pattern in patterns
        if not any(_matches(pattern, node_id) for node_id in candidates)
    ]


def markdown_rows() -> list[str]:
    """The table of tests/README.md."""
    return [f"| {_cell(suite.tests)} | {_cell(suite.stays)} | {suite.reason} |" for suite in LONG_SUITES]


def _cell(patterns: tuple[str, ...]) -> str:
    return "<br>".join(f"`{pattern.removeprefix('tests/')}`" for pattern in patterns)

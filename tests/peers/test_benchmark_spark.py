"""The study of Spark's sources: its records, its judgements, and its table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bench.client.values import VALUES_COUNT
from bench.spark.busy_host import busy_host
from bench.spark.contenders import OFFICIAL, OFFICIAL_TUNED, OTTLA
from bench.spark.filling import PARTITIONS, rows_of, shares_of, value_bytes_in, write_rows
from bench.spark.matrix import FULL, LATENCY, QUICK, TARGETS, Shape
from bench.spark.processes import SparkProcesses
from bench.spark.table import judgements, missed_floors, spark_table, workload_of
from bench.study import ROUND, Observed

from tests.eventually import eventually
from tests.peers.process_usage import cpu_seconds


def observed_rates(scenario: str, **rates: list[float]) -> Observed:
    observed = Observed({})
    for name, values in rates.items():
        for index, value in enumerate(values):
            names = ("jvm_cpu_us_per_row", "python_cpu_us_per_row", "broker_cpu_us_per_row", "cpu_us_per_row")
            costs = dict(zip(names, (1.0, 2.0, 4.0, 7.0), strict=True))
            observed.add(scenario, name.replace("_", "-"), {"rows_per_s": value, **costs, ROUND: index})
    return observed


def test_fixed_records_have_one_size_and_variable_ones_many_around_it() -> None:
    assert {(key, len(value)) for key, value in rows_of(Shape("fixed", 200, "plain"))} == {(None, 200)}
    variable = rows_of(Shape("variable", 200, "plain"))
    lengths = [len(value) for _, value in variable]
    assert (min(lengths), max(lengths)) == (100, 300)
    assert sum(lengths) / len(lengths) == pytest.approx(200, rel=0.05)
    assert {len(key) for key, _ in variable if key is not None} == set(range(1, 9))


def test_sum_of_lengths_is_that_of_the_records_in_their_order_again_and_again() -> None:
    shape = Shape("variable", 100, "zstd")
    rows = VALUES_COUNT + 3
    lengths = [len(value) for _, value in rows_of(shape)]
    assert value_bytes_in(shape, rows) == sum(lengths) + sum(lengths[:3])


def test_files_for_a_sink_hold_all_rows(tmp_path: Path) -> None:
    shape = Shape("variable", 100, "plain")
    write_rows(tmp_path / "rows", shape, 2 * VALUES_COUNT * PARTITIONS + 1)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "rows").iterdir())]
    assert [table.num_rows for table in tables] == [2 * VALUES_COUNT + 1, *[2 * VALUES_COUNT] * (PARTITIONS - 1)]
    expected = [(key, value) for key, value in rows_of(shape)]
    assert list(zip(*(column.to_pylist() for column in tables[1].columns), strict=True)) == expected * 2


@pytest.mark.parametrize(
    ("scenario", "ratio", "verdict"),
    [
        ("count-fixed-100-plain", 3.0, "aim met"),
        ("count-fixed-100-plain", 2.9, "floor met"),
        ("count-fixed-100-plain", 1.9, "floor missed"),
        ("stream-limited-fixed-200-plain", 1.19, "floor missed"),
        (LATENCY, 0.9, "aim met"),
        (LATENCY, 1.1, "floor met"),
        (LATENCY, 1.3, "floor missed"),
    ],
)
def test_verdicts_follow_aim_and_floor(scenario: str, ratio: float, verdict: str) -> None:
    assert TARGETS[workload_of(scenario)].verdict(ratio) == verdict


def test_every_workload_has_a_target() -> None:
    names = [*TARGETS, *(f"{name}-{shape.topic}" for name in TARGETS for shape in (*FULL.read, *QUICK.read))]
    assert {workload_of(name) for name in names} == set(TARGETS)
    assert workload_of("stream-limited-fixed-200-plain") == "stream-limited"
    assert workload_of("busy-sink-fixed-200-plain") == "busy-sink"


def test_ratio_is_the_median_of_the_rounds_that_both_have() -> None:
    observed = observed_rates(
        "sum-fixed-200-plain", ottla=[3e6, 4e6, 9e6], official=[1e6, 2e6, 2e6], official_tuned=[1e6]
    )
    assert [(each.other, each.ratio) for each in judgements(observed)] == [(OFFICIAL, 3.0), (OFFICIAL_TUNED, 3.0)]


def test_missed_floor_is_a_problem_that_names_its_scenario() -> None:
    below = judgements(observed_rates("sink-fixed-200-plain", ottla=[1.7e6], official=[1e6]))
    assert [(each.is_below, each.text) for each in below] == [
        (True, "1.70x of official (floor 1.8x, aim 2.5x): floor missed")
    ]


def test_table_shows_rates_costs_and_missing_measurements() -> None:
    table = spark_table(observed_rates("count-fixed-200-plain", ottla=[3e6], official=[1e6]))
    assert "| count-fixed-200-plain | 3 | - | 1 | - | 3.00x, aim met | - | - | 3x / 2x |" in table
    assert "| count-fixed-200-plain | official | 1 | 2 | 4 | 7 |" in table
    assert spark_table(Observed({})) == "Nothing was measured."


def test_sink_of_a_tuned_session_is_beside_the_tuned_connector() -> None:
    rates = {"ottla": [2e6], "ottla_tuned": [3e6], "official": [1e6], "official_tuned": [1.5e6]}
    table = spark_table(observed_rates("sink-fixed-200-plain", **rates))
    assert "| 2 | 3 | 1 | 1.5 | 2.00x, floor met | 1.33x, floor missed | 2.00x |" in table


def test_workload_is_judged_over_all_its_scenarios() -> None:
    observed = Observed({})
    for name, rate in (
        ("count-fixed-100-plain", 1.9e6),
        ("count-fixed-200-plain", 2.5e6),
        ("count-fixed-1024-lz4", 3e6),
    ):
        for contender, its in ((OTTLA, rate), (OFFICIAL, 1e6)):
            observed.add(name, contender, {"rows_per_s": its, ROUND: 0})
    row = "| count | official | 2.50x | 1.90..3.00 | floor met | 3x: met in 1 of 3 | 2x: met in 2 of 3 |"
    assert row in spark_table(observed)
    assert missed_floors(observed) == ["count-fixed-100-plain: 1.90x of official (floor 2x, aim 3x): floor missed"]


def test_processes_that_fill_a_topic_together_write_the_same_as_one() -> None:
    shape = Shape("variable", 100, "plain")
    for rows in (1, VALUES_COUNT * 2 - 1, VALUES_COUNT * 5 + 7):
        shares = shares_of(rows)
        assert sum(shares) == rows
        assert sum(value_bytes_in(shape, share) for share in shares) == value_bytes_in(shape, rows)


def test_times_of_micro_batches_are_judged_the_other_way_round() -> None:
    observed = Observed({})
    for name, time_ms in ((OTTLA, 150.0), (OFFICIAL, 100.0)):
        figures = {"batch_p50_ms": time_ms, "batch_p99_ms": 2 * time_ms, "cpu_share": 0.5, ROUND: 0}
        observed.add(LATENCY, name, figures)
    assert "| official | 100 | 200 | 0.5 | 1.50x, floor missed |" in spark_table(observed)


def test_usage_of_processes_counts_the_cost_of_a_row() -> None:
    processes = SparkProcesses(os.getpid())
    before = processes.usage()
    while (now := processes.usage()).jvm_s - before.jvm_s < 0.05:
        sum(range(10_000))
    figures = now.since(before, 1000)
    assert figures["jvm_cpu_us_per_row"] >= 50
    assert figures["rows_per_s"] == pytest.approx(1000 / figures["seconds"])
    assert processes.rss()[0] > 1_000_000


def test_usage_of_processes_includes_ended_ones() -> None:
    burn = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with SparkProcesses(os.getpid()) as processes:
        command = [sys.executable, "-c", burn]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            used_s = processes.usage().python_s
            assert used_s >= 0.45, "the kernel counts in steps of 10 ms"
            child.communicate(b"\n")
        assert processes.usage().python_s >= used_s


def test_processes_of_a_busy_host_use_the_processor_until_the_measurement_ends() -> None:
    with busy_host(2) as pids:
        assert len(set(pids)) == 2
        eventually(lambda: all(cpu_seconds(pid) > 0 for pid in pids))
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

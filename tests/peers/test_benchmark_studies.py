"""The studies' arithmetic: when a group has settled, its members' shares, and that a failing peer is only reported."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest
from bench.groups.board import Board, NotSettled
from bench.groups.load_study import coordinator_partition, missed_promises, offset_of
from bench.groups.member import assign_ranges
from bench.groups.requests import assignment, read_assignment, read_fetched
from bench.groups.study import rebalance_table
from bench.growth.idle import KB_PER_CONNECTION
from bench.growth.load import CPU_US, REQUESTS_PER_S
from bench.growth.table import growth_table
from bench.paper.study import check_stored, paper_table, scenario_name
from bench.raw_client.load import LoadFailed, ProduceLoad
from bench.studies import STUDIES, CannotContinue, continued
from bench.study import ROUND, Observed, number, percentile, write
from bench.tls.study import CORES, CPU_PER_GB, FETCH, TLS, line_name, tls_table
from bench.transactions.study import COMMIT_P50_MS, COMMIT_P99_MS, CPU_MS, TRANSACTIONS_PER_S, transactions_table
from bench.transactions.study import line_name as transactions_line
from bench.wire import Reader


def test_median_and_spread_are_of_all_rounds_of_one_peer() -> None:
    observed = Observed({})
    for seconds in (3.0, 1.0, 2.5):
        observed.add("join-2", "ottla-ack", {"seconds": seconds})
    observed.add("join-2", "apache-kafka", {"seconds": 100.0})
    assert observed.median("join-2", "ottla-ack", "seconds") == 2.5
    assert observed.spread("join-2", "ottla-ack", "seconds") == (1.0, 3.0)
    assert observed.median("join-2", "ottla-ack", "no such metric") is None
    assert observed.median("leave-2", "ottla-ack", "seconds") is None


def test_result_continues_where_it_ended_and_keeps_one_set_of_figures_for_each_round() -> None:
    about = {"commit": "c0ffee", "has_local_changes": False, "machine": {"cores": 2}, "is_quick": False}
    first = Observed({**about, "rounds": 2, "arguments": "spark --part read"}, problems=["official: it died"])
    for index in range(2):
        first.add("join-2", "ottla-ack", {"seconds": 1.0 + index, ROUND: index})
    now = {**about, "rounds": 3, "started": "today", "arguments": "spark --part sink"}
    second = continued(json.loads(json.dumps(first.document())), now)
    assert second.has("join-2", "ottla-ack", 1)
    assert not second.has("join-2", "ottla-ack", 2)
    second.add("join-2", "ottla-ack", {"seconds": 9.0, ROUND: 1})
    second.add("join-2", "ottla-ack", {"seconds": 5.0, ROUND: 2})
    assert second.spread("join-2", "ottla-ack", "seconds") == (1.0, 9.0)
    assert second.median("join-2", "ottla-ack", "seconds") == 5.0
    assert second.problems == ["official: it died"]
    assert second.about["rounds"] == 3
    assert second.about["continued"] == ["today: spark --part sink"]


@pytest.mark.parametrize("other", [{"commit": "bad"}, {"machine": {"cores": 4}}, {"is_quick": True}])
def test_result_of_other_code_machine_or_size_is_not_continued(other: dict[str, object]) -> None:
    about: dict[str, object] = {
        "commit": "c0ffee",
        "has_local_changes": False,
        "machine": {"cores": 2},
        "is_quick": False,
    }
    with pytest.raises(CannotContinue, match=next(iter(other))):
        continued(Observed({**about, "rounds": 1}).document(), {**about, **other, "rounds": 1})


def test_failure_of_a_peer_is_recorded_and_the_study_continues() -> None:
    observed = Observed({})
    with observed.may_fail("rabbitmq"):
        check_stored(2, 1)
    assert observed.problems == ["rabbitmq: LoadFailed: 2 messages were acknowledged, 1 are stored"]


def test_mistake_of_the_benchmark_itself_is_not_taken_for_a_peers_failure() -> None:
    observed = Observed({})
    with pytest.raises(KeyError), observed.may_fail("rabbitmq"):
        raise KeyError("messages_per_s")
    assert observed.problems == []


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (1.0, 100)])
def test_percentile_is_the_smallest_value_that_covers_the_share(share: float, value: int) -> None:
    assert percentile(list(range(100, 0, -1)), share) == value


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_numbers_are_shown_with_three_digits_and_missing_ones_as_a_dash() -> None:
    assert [number(value) for value in (None, 0.12345, 12.345, 1234.5)] == ["-", "0.123", "12.3", "1,234"]


def test_ranges_cover_every_partition_once_and_differ_by_one_at_most() -> None:
    shares = assign_ranges(["c", "a", "b"], 10)
    assert shares == {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}


def test_assignment_of_the_leader_is_read_back() -> None:
    assert read_assignment(assignment("events", [3, 1])) == [3, 1]
    assert read_assignment(b"") == []


def test_group_has_settled_when_one_generation_owns_every_partition_once() -> None:
    board = Board(3)
    board.write("a", 1, [0, 1])
    assert board.settled_at(2) is None, "one member is missing"
    board.write("b", 2, [2])
    assert board.settled_at(2) is None, "two generations"
    board.write("a", 2, [0])
    assert board.settled_at(2) is None, "no member owns partition 1"
    board.write("a", 2, [0, 1])
    settled = board.settled_at(2)
    assert settled is not None
    assert board.settled_at(3) is None
    board.write("b", 2, [1, 2])
    assert board.settled_at(2) is None, "partition 1 is owned twice"


def test_group_that_does_not_settle_is_an_error() -> None:
    with pytest.raises(NotSettled, match="2 members did not settle"):
        asyncio.run(Board(1).settle(2, timeout_s=0.01))


def test_groups_own_partition_is_that_of_javas_string_hash() -> None:
    # "hello".hashCode() is 99162322 in Java; "polygenelubricants".hashCode() is its smallest integer.
    assert coordinator_partition("hello") == 99162322 % 50
    assert coordinator_partition("polygenelubricants") == 0


def test_committed_offsets_differ_by_group_and_partition() -> None:
    assert len({offset_of(group, partition) for group in range(30) for partition in range(1000)}) == 30_000


@pytest.mark.parametrize(
    ("figures", "missed"),
    [((0.5, 15.0, 2.0), []), ((0.6, 15.1, 2.1), ["ready_s", "load_s", "produce_p99_ms_during"])],
)
def test_restart_with_many_groups_is_judged_by_its_limits(
    figures: tuple[float, float, float], missed: list[str]
) -> None:
    names = ("ready_s", "load_s", "produce_p99_ms_during")
    words = missed_promises(dict(zip(names, figures, strict=True)) | {"produce_p99_ms_idle": 1.0})
    assert [word.split()[2] for word in words] == missed


@pytest.mark.parametrize("stored", [9, 11])
def test_messages_that_were_acknowledged_but_not_stored_are_a_failure(stored: int) -> None:
    with pytest.raises(LoadFailed, match="10 messages were acknowledged"):
        check_stored(10, stored)


def test_system_that_does_not_report_its_stored_messages_is_trusted() -> None:
    check_stored(10, -1)
    check_stored(10, 10)


def test_paper_table_has_a_row_for_each_form_and_client_that_was_measured() -> None:
    observed = Observed({})
    for batch, rate in ((1, 1000.0), (50, 20000.0)):
        name = scenario_name(True, "java", "produce", batch)
        observed.add(name, "rabbitmq", {"messages_per_s": rate, "broker_cpu_us_per_message": 5.0, "rss_mb": 70 + batch})
    table = paper_table(observed)
    rows = [line for line in table.splitlines() if line.startswith("| RabbitMQ")]
    assert rows == ["| RabbitMQ | persistent, confirmed | java | 1,000 | 20,000 | - | 5 / 5 / - | 120 |"]


def test_rebalance_table_shows_milliseconds_with_their_spread() -> None:
    observed = Observed({})
    for seconds in (0.1, 0.3, 0.2):
        observed.add("join-10", "ottla-ack", {"seconds": seconds})
    observed.add("storm-200-delay-3000", "apache-kafka", {"seconds": 3.5})
    table = rebalance_table(observed)
    assert "| 10 members: one more joins | - | 200 (100..300) |" in table
    assert "| 200 join at once, delay 3,000 ms | 3,500 (3,500..3,500) | - |" in table


def test_paced_load_is_passed_to_the_raw_client() -> None:
    words = ProduceLoad(1, in_flight=5, requests_per_s=1000, connections=7).arguments()
    assert {"--requests-per-s=1000", "--connections=7"} <= set(words)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_study_that_measured_nothing_still_writes_its_problems(name: str, tmp_path: Path) -> None:
    observed = Observed({"groups": 1, "committed_offsets": 1}, problems=["apache-kafka: no java command"])
    write(STUDIES[name], observed, tmp_path / "run")
    assert "no java command" in (tmp_path / "run.md").read_text()
    assert "no java command" in (tmp_path / "run.json").read_text()


@pytest.mark.parametrize(("ottla_mb_per_s", "verdict"), [(160.0, "0.8x: met"), (150.0, "0.8x: missed")])
def test_table_of_tls_judges_a_line_with_tls_by_its_aim_and_compares_processor_time(
    ottla_mb_per_s: float, verdict: str
) -> None:
    observed = Observed({})
    for name, rate, cpu in (("apache-kafka", 200.0, 3.0), ("ottla-os", ottla_mb_per_s, 1.5)):
        figures = {ROUND: 0, "mb_per_s": rate, CPU_PER_GB: cpu, CORES: 0.5}
        observed.add(line_name(FETCH, TLS), name, figures)
    [line] = [line for line in tls_table(observed).splitlines() if line.startswith("| fetch-1m, MB/s | tls |")]
    assert verdict in line
    assert "| 3 (0.5) s/GB | 1.5 (0.5) s/GB | 2.00x |" in line


def test_table_of_transactions_compares_rates_and_shows_the_latency_of_commits() -> None:
    observed = Observed({})
    for name, rate in (("apache-kafka", 200.0), ("ottla-os", 500.0), ("ottla-ack", 300.0)):
        figures = {TRANSACTIONS_PER_S: rate, COMMIT_P50_MS: 1.5, COMMIT_P99_MS: 4.0, CPU_MS: 0.2}
        observed.add(transactions_line(10, 1), name, {ROUND: 0, **figures})
    table = transactions_table(observed)
    assert "| 10 producers, 1 record | 200 | 500 | 2.50x | 300 | 1.50x |" in table
    assert "| 10 producers, 1 record | ottla-os | 1.5 | 4 | 0.2 |" in table


@pytest.mark.parametrize(
    ("two_processes", "verdict"),
    [
        (32.0, "1.60x of Apache Kafka by ottla-2p, aim 1.5x: met"),
        (10.0, "1.40x of Apache Kafka by ottla-os, aim 1.5x: missed"),
    ],
)
def test_table_of_growth_judges_the_better_form_by_the_ratios_of_the_rounds(two_processes: float, verdict: str) -> None:
    observed = Observed({})
    for round_index, speed in enumerate((1.0, 3.0)):
        for name, rate in (("apache-kafka", 20.0), ("ottla-os", 28.0), ("ottla-2p", two_processes)):
            figures = {ROUND: round_index, REQUESTS_PER_S: rate * speed, CPU_US: 10.0 if name == "ottla-os" else 11.0}
            observed.add("clients-16-b50-f5", name, figures)
    table = growth_table(observed)
    assert f"* clients-16-b50-f5: {verdict}" in table
    assert "processor time per request of ottla-2p is 1.10x of ottla-os's" in table


def test_table_of_growth_judges_the_memory_of_an_idle_connection() -> None:
    observed = Observed({})
    for name, size in (("apache-kafka", 30.0), ("ottla-os", 9.0), ("ottla-2p", 11.0)):
        observed.add("idle-10000", name, {KB_PER_CONNECTION: size})
    words = [line for line in growth_table(observed).splitlines() if line.startswith("* idle")]
    assert words == [
        "* idle-10000: 9.0 kB/connection of ottla-os, aim 10: met",
        "* idle-10000: 11.0 kB/connection of ottla-2p, aim 10: missed",
    ]


@pytest.mark.parametrize(("cut_bytes", "expected"), [(0, 57), (1, 50)])
def test_follower_continues_after_the_last_whole_batch(cut_bytes: int, expected: int) -> None:
    def batch(base_offset: int, records: int) -> bytes:
        return struct.pack(">qiibihi", base_offset, 60, 0, 2, 0, 0, records - 1) + bytes(45)

    records = (batch(40, 10) + batch(50, 7))[: 2 * 72 - cut_bytes]
    head = struct.pack(">ihi", 0, 0, 0) + struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iih", 1, 0, 0)
    answer = head + struct.pack(">qqqii", 57, 57, 0, -1, -1) + struct.pack(">i", len(records)) + records
    assert read_fetched(Reader(answer), 40) == (0, expected)

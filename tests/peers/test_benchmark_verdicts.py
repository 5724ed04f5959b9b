"""The benchmark's judgement: the criteria of a pass and of a missed floor, and that drift cancels out of ratios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.outcome import Line, Results
from bench.peers.names import APACHE_KAFKA, OTTLA_ACK, OTTLA_OS
from bench.runner import is_steady
from bench.scenarios.produce import produce_scenarios
from bench.table import whole_table
from bench.targets import LIMITS, RATIOS, Verdict

SCENARIO = "produce-b1-f5-p1"


def line(peer: str, *rates: float, scenario: str = SCENARIO) -> Line:
    return Line(scenario, peer, "requests_per_s", [{"requests_per_s": rate} for rate in rates])


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [(299, Verdict.BELOW), (300, Verdict.FLOOR), (499, Verdict.FLOOR), (500, Verdict.PASS)],
)
def test_ratio_is_judged_by_floor_and_aim(rate: float, verdict: Verdict) -> None:
    results = Results({}, lines=[line(APACHE_KAFKA, 100), line(OTTLA_OS, rate)])
    (judgement,) = results.judgements()
    assert (judgement.verdict, judgement.floor, judgement.aim) == (verdict, 3, 5)
    assert results.has_missed_a_floor is (verdict is Verdict.BELOW)


def test_ratio_compares_each_round_with_the_same_round_when_the_machine_drifts() -> None:
    results = Results({}, lines=[line(APACHE_KAFKA, 100, 50, 200), line(OTTLA_OS, 400, 200, 800)])
    assert results.ratio(results.lines[1], "requests_per_s") == 4


def test_startup_and_idle_memory_are_judged_by_their_own_limits() -> None:
    figures = {"startup_s": 0.4, "rss_mb": 61.0}
    results = Results({}, lines=[Line("fresh-start", OTTLA_ACK, "startup_s", [figures])])
    verdicts = {judgement.metric: judgement.verdict for judgement in results.judgements()}
    assert verdicts == {"startup_s": Verdict.PASS, "rss_mb": Verdict.BELOW}


def test_nothing_is_judged_by_ratio_when_apache_kafka_did_not_run() -> None:
    results = Results({}, lines=[line(OTTLA_OS, 1)])
    assert results.judgements() == []
    assert not results.has_missed_a_floor


def test_every_limit_names_a_scenario_that_exists() -> None:
    names = {scenario.name for scenario in produce_scenarios(1)} | {"fetch-64k", "fetch-1m"}
    assert {scenario for scenario, _ in RATIOS} <= names
    assert {scenario for scenario, _ in LIMITS} == {"fresh-start"}


def test_results_are_written_with_ratios_verdicts_and_every_round(tmp_path: Path) -> None:
    results = Results({"commit": "abc"}, lines=[line(APACHE_KAFKA, 100, 110), line(OTTLA_OS, 600, 660)])
    results.write_json(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["about"] == {"commit": "abc"}
    assert document["lines"][1]["ratio"] == pytest.approx(6)
    assert document["lines"][1]["rounds"] == [{"requests_per_s": 600}, {"requests_per_s": 660}]
    assert document["judgements"][0]["verdict"] == "PASS"
    row = next(row for row in whole_table(results).splitlines() if row.startswith(SCENARIO) and OTTLA_OS in row)
    assert "6.00x" in row
    assert row.endswith("PASS")


def test_warm_up_is_steady_only_when_its_last_three_rates_agree() -> None:
    assert not is_steady([100, 100])
    assert not is_steady([100, 100, 111.2])
    assert is_steady([10, 100, 105, 110])

"""Groups under faults of a seed; a failed run is replayed by `./dev sim --consumers --seed N`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.consumers_simulation.plan import FAULT_KINDS, HERD_COUNT, Plan
from tests.consumers_simulation.simulation import SIMULATOR, Simulation
from tests.property.property_settings import SHARE, exhaustive, is_tried
from tests.seeds.fresh_seeds import run_fresh_seeds

# How long fresh seeds run in `./dev test`, and in `./dev suites`.
FRESH_SECONDS: Final = (3, 40)


def test_equal_seeds_are_equal_runs() -> None:
    first, second, other = (Simulation(seed, traces=True).run() for seed in (11, 11, 12))
    assert first == second
    assert first.digest != other.digest


@pytest.mark.parametrize("seconds", FRESH_SECONDS)
def test_guarantees_hold_in_fresh_seeds(seconds: int, record_property: Callable[[str, object], None]) -> None:
    found = run_fresh_seeds(SIMULATOR, seconds, record_property)
    # A run without deliveries proves nothing.
    assert found.counts["handed_out"] > 100 * found.seeds_count
    assert found.counts["claims"] > 5 * found.seeds_count


@exhaustive
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_each_kind_of_fault_alone_is_survived(kind: str) -> None:
    for seed in filter(is_tried, range(SHARE)):
        outcome = Simulation(seed, Plan.of_seed(seed).with_only(kind)).run()
        assert outcome.handed_out_count > 0


def test_twenty_consumers_that_start_at_once_settle_with_few_claims() -> None:
    plan = replace(
        Plan.of_seed(1).with_only(),
        consumers_count=HERD_COUNT,
        consumers_max=HERD_COUNT,
        partitions_counts=(40,),
        start_ms=5,
        lost_answers=0.0,
        lag_changes_max=0,
        late_watch_ms=5,
    )
    simulation = Simulation(3, plan)
    outcome = simulation.run()
    # One rebalance for all of them, not one for each: each partition is claimed once or twice.
    assert outcome.claims_count <= 2 * 40
    assert outcome.blocked_count == 0


def test_runs_differ_in_their_faults_and_sizes() -> None:
    plans = [Plan.of_seed(seed) for seed in range(200)]
    assert {kind for plan in plans for kind in plan.fault_kinds} == set(FAULT_KINDS)
    assert {plan.consumers_count for plan in plans} == {1, 2, 3, 4, HERD_COUNT}

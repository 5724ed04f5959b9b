"""The cluster's replication under faults of a seed; a failed run is replayed by `./dev sim --seed N`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.property.property_settings import SHARE, exhaustive, is_tried
from tests.seeds.fresh_seeds import run_fresh_seeds
from tests.simulation.plan import FAULT_KINDS, Plan
from tests.simulation.simulation import SIMULATOR, Simulation

# How long fresh seeds run in `./dev test`, and in `./dev suites`.
FRESH_SECONDS = (4, 60)


def test_equal_seeds_are_equal_runs() -> None:
    first, second, other = (Simulation(seed, traces=True).run() for seed in (11, 11, 12))
    assert first == second
    assert first.digest != other.digest


@pytest.mark.slow
@pytest.mark.parametrize("seconds", FRESH_SECONDS)
def test_nothing_acknowledged_is_lost_in_fresh_seeds(
    seconds: int, record_property: Callable[[str, object], None]
) -> None:
    found = run_fresh_seeds(SIMULATOR, seconds, record_property)
    # A run without acknowledgements proves nothing.
    assert found.counts["acknowledged"] > 100 * found.seeds_count
    assert found.counts["elections"] > 2 * found.seeds_count


@exhaustive
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_each_kind_of_fault_alone_is_survived(kind: str) -> None:
    for seed in filter(is_tried, range(SHARE)):
        plan = Plan.of_seed(seed).with_only(kind)
        outcome = Simulation(seed, plan).run()
        assert outcome.acknowledged_count > 0


def test_runs_differ_in_their_faults_and_sizes() -> None:
    plans = [Plan.of_seed(seed) for seed in range(200)]
    assert {kind for plan in plans for kind in plan.fault_kinds} == set(FAULT_KINDS)
    assert {plan.brokers_count for plan in plans} == {3, 4, 5}
    assert {plan.min_in_sync for plan in plans} == {1, 2, 3}
    assert {(plan.is_os_policy, plan.allows_unclean) for plan in plans} >= {(True, False), (False, True)}

"""Transactions under faults that a seed chooses; a failed run is replayed by `./dev sim --transactions --seed N`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.property.property_settings import SHARE, exhaustive, is_tried
from tests.seeds.fresh_seeds import run_fresh_seeds
from tests.transactions_simulation.plan import FAULT_KINDS, Plan
from tests.transactions_simulation.simulation import SIMULATOR, Simulation

# How long fresh seeds run in `./dev test`, and in `./dev suites`.
FRESH_SECONDS: Final = (3, 40)


def test_equal_seeds_are_equal_runs() -> None:
    first, second, other = (Simulation(seed, traces=True).run() for seed in (11, 11, 12))
    assert first == second
    assert first.digest != other.digest


@pytest.mark.parametrize("seconds", FRESH_SECONDS)
def test_guarantees_hold_in_fresh_seeds(seconds: int, record_property: Callable[[str, object], None]) -> None:
    found = run_fresh_seeds(SIMULATOR, seconds, record_property)
    # A run that shows nothing proves nothing.
    assert found.counts["committed"] > 10 * found.seeds_count


@exhaustive
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_each_kind_of_fault_alone_is_survived(kind: str) -> None:
    for seed in filter(is_tried, range(SHARE)):
        plan = replace(Plan.of_seed(seed).with_only(kind), advances_epoch=seed % 2 == 0)
        assert Simulation(seed, plan).run().committed_count > 0


def test_runs_differ_in_their_faults_and_settings() -> None:
    plans = [Plan.of_seed(seed) for seed in range(200)]
    assert {kind for plan in plans for kind in plan.fault_kinds} == set(FAULT_KINDS)
    assert {plan.advances_epoch for plan in plans} == {True, False}
    assert len({plan.first_epoch for plan in plans}) == 2

"""The simulation finds planted bugs: each breaks a promise within a few seeds, `./dev sim --mutants` shows how many."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.search import run_seeds
from tests.simulation.simulation import Simulation

SEEDS_MAX: Final = 1000

# Where a search begins for the bugs that few seeds find.  After a change of the simulation it may take longer.
FIRST_SEEDS: Final = {
    "a follower keeps what its leader cannot compare any more": 149,
    "a fetch counts in any leader epoch": 180,
    "an unknown outcome counts as a failure": 46,
}


@pytest.mark.parametrize("bug", MUTANTS)
def test_planted_bug_breaks_a_promise(bug: str) -> None:
    assert MUTANTS[bug].seeds_needed(SEEDS_MAX, FIRST_SEEDS.get(bug, 0)) is not None


def test_same_seeds_break_nothing_without_the_bugs() -> None:
    assert run_seeds(range(10)).violations == {}
    for bug, seed in FIRST_SEEDS.items():
        mutant = MUTANTS[bug]
        simulation = Simulation(seed)
        Simulation(seed, mutant.plan(simulation.plan)).run()

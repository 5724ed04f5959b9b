"""The simulation finds planted bugs, each within a few seeds: `./dev sim --producer --mutants` shows how many."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.producer_simulation.mutants import MUTANTS
from tests.producer_simulation.simulation import SIMULATOR
from tests.property.property_settings import exhaustive, is_tried

SEEDS_MAX: Final = 200
DOCS: Final = Path(__file__).parents[2] / "docs" / "producer.md"


@pytest.mark.parametrize("bug", MUTANTS)
def test_planted_bug_breaks_a_promise(bug: str) -> None:
    assert SIMULATOR.seeds_needed(MUTANTS[bug], SEEDS_MAX) is not None


@exhaustive
def test_same_seeds_break_nothing_without_the_bugs() -> None:
    assert SIMULATOR.run_seeds(filter(is_tried, range(20))).violations == {}


def test_docs_list_every_planted_bug() -> None:
    text = DOCS.read_text()
    assert [bug for bug in MUTANTS if f"| {bug} |" not in text] == []

"""The simulation finds planted bugs, each within a few seeds: `./dev sim --consumers --mutants` shows how many."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.consumers_simulation.mutants import MUTANTS
from tests.consumers_simulation.simulation import SIMULATOR
from tests.property.property_settings import exhaustive, is_tried

SEEDS_MAX: Final = 500
DOCS: Final = Path(__file__).parents[2] / "docs" / "consumers.md"


@pytest.mark.parametrize("bug", MUTANTS)
def test_planted_bug_breaks_a_guarantee(bug: str) -> None:
    assert SIMULATOR.seeds_needed(MUTANTS[bug], SEEDS_MAX) is not None


@exhaustive
def test_same_seeds_break_nothing_without_the_bugs() -> None:
    assert SIMULATOR.run_seeds(filter(is_tried, range(30))).violations == {}


def test_docs_list_every_planted_bug() -> None:
    rows = {line.split(" | ")[0].removeprefix("| ") for line in DOCS.read_text().splitlines() if line.count(" | ") == 2}
    assert rows >= MUTANTS.keys()

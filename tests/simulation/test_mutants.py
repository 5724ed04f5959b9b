"""The simulation finds planted bugs: each breaks a guarantee within a few seeds, `./dev sim --mutants` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.property.property_settings import exhaustive, is_tried
from tests.simulation.mutants import MUTANTS
from tests.simulation.simulation import SIMULATOR

SEEDS_MAX: Final = 1000
DOCS: Final = Path(__file__).parents[2] / "docs" / "replication.md"

# Hundreds of seeds may miss it: test_scripts has the order of events that reveals it.
SCRIPTED: Final = {"a fetch counts in any leader epoch"}


@pytest.mark.parametrize("bug", [bug for bug in MUTANTS if bug not in SCRIPTED])
def test_planted_bug_breaks_a_guarantee(bug: str) -> None:
    assert SIMULATOR.seeds_needed(MUTANTS[bug], SEEDS_MAX) is not None


@exhaustive
def test_same_seeds_break_nothing_without_the_bugs() -> None:
    assert SIMULATOR.run_seeds(filter(is_tried, range(30))).violations == {}


def test_docs_list_every_planted_bug_with_its_reference() -> None:
    rows = [line.split(" | ") for line in DOCS.read_text().splitlines() if line.count(" | ") == 3]
    assert {(bug.removeprefix("| "), reference) for bug, reference, *_ in rows} >= {
        (mutant.bug, mutant.reference) for mutant in MUTANTS.values()
    }

"""`./dev sim --producer`: replays one seed with its trace, searches fresh seeds, or shows what kills each mutant."""

from __future__ import annotations

from typing import Final

from tests.producer_simulation.mutants import MUTANTS
from tests.producer_simulation.search import replay, run_seeds
from tests.seeds.command import Command

COMMAND: Final = Command(
    "./dev sim --producer",
    __doc__,
    run_seeds,
    replay,
    ("Bug",),
    {(mutant.bug,): mutant.seeds_needed for mutant in MUTANTS.values()},
    1000,
)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

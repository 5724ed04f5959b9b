"""`./dev sim --transactions`: replays a seed with its trace, searches fresh seeds, or shows what kills each mutant."""

from __future__ import annotations

from typing import Final

from tests.seeds.command import Command
from tests.transactions_simulation.mutants import MUTANTS
from tests.transactions_simulation.search import replay, run_seeds

COMMAND: Final = Command(
    "./dev sim --transactions",
    __doc__,
    run_seeds,
    replay,
    ("Bug",),
    {(mutant.bug,): mutant.seeds_needed for mutant in MUTANTS.values()},
    1000,
)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

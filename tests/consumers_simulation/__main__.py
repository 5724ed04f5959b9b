"""`./dev sim --consumers`: replays a seed with its trace, searches fresh seeds, or shows the seeds that reveal bugs."""

from __future__ import annotations

from typing import Final

from tests.consumers_simulation.mutants import MUTANTS
from tests.consumers_simulation.search import replay, run_seeds
from tests.seeds.command import Command

# The table of mutants is in docs/consumers.md.
COMMAND: Final = Command(
    "./dev sim --consumers",
    __doc__,
    run_seeds,
    replay,
    ("Bug",),
    {(mutant.bug,): mutant.seeds_needed for mutant in MUTANTS.values()},
    2000,
)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

"""`./dev sim --consumers`: replays a seed with its trace, searches fresh seeds, or shows the seeds that reveal bugs."""

from __future__ import annotations

from typing import Final

from tests.consumers_simulation.mutants import MUTANTS
from tests.consumers_simulation.simulation import SIMULATOR
from tests.seeds.command import Command

# The table of mutants is in docs/consumers.md.
COMMAND: Final = Command(__doc__, SIMULATOR, MUTANTS.values(), 2000)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

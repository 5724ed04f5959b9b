"""`./dev sim`: replays a seed with its trace, searches fresh seeds, or shows the seeds that reveal mutants."""

from __future__ import annotations

from typing import Final

from tests.seeds.command import Command
from tests.simulation.mutants import MUTANTS
from tests.simulation.simulation import SIMULATOR

# The table of mutants is in docs/replication.md.
COMMAND: Final = Command(__doc__, SIMULATOR, MUTANTS.values(), 3000)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

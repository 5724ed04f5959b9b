"""`./dev sim --producer`: replays one seed with its trace, searches fresh seeds, or shows what kills each mutant."""

from __future__ import annotations

from typing import Final

from tests.producer_simulation.mutants import MUTANTS
from tests.producer_simulation.simulation import SIMULATOR
from tests.seeds.command import Command

COMMAND: Final = Command(__doc__, SIMULATOR, MUTANTS.values(), 1000)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

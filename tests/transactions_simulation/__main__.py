"""`./dev sim --transactions`: replays a seed with its trace, searches fresh seeds, or shows what kills each mutant."""

from __future__ import annotations

from typing import Final

from tests.seeds.command import Command
from tests.transactions_simulation.mutants import MUTANTS
from tests.transactions_simulation.simulation import SIMULATOR

COMMAND: Final = Command(__doc__, SIMULATOR, MUTANTS.values(), 1000)

if __name__ == "__main__":
    raise SystemExit(COMMAND.main())

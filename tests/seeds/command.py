"""The command of a simulation: replays one seed, searches fresh ones, or shows which seed reveals each mutant."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Collection
from typing import Generic, NamedTuple, TypeVar

from tests.seeds.planted import Mutant
from tests.seeds.search import seeds_until
from tests.seeds.simulator import Simulator

P = TypeVar("P")


class Command(NamedTuple, Generic[P]):
    """`mutant_seeds_max`: so many seeds may miss a planted bug, unless another limit is given."""

    about: str
    simulator: Simulator[P]
    mutants: Collection[Mutant[P]]
    mutant_seeds_max: int

    def main(self) -> int:
        parser = argparse.ArgumentParser(prog=self.simulator.command, description=self.about)
        parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
        parser.add_argument("--minutes", type=float, default=1.0, help="search fresh seeds for so long")
        parser.add_argument("--first", type=int, help="search from this seed on, not from a random one")
        parser.add_argument(
            "--mutants", action="store_true", help="plant each known bug, and count the seeds that it survives"
        )
        parser.add_argument(
            "--seeds", type=int, default=self.mutant_seeds_max, help="give a mutant up after so many seeds"
        )
        options = parser.parse_args()
        if options.mutants:
            return self._show_mutants(options.seeds)
        if options.seed is not None:
            lines = self.simulator.replay(options.seed)
            print("\n".join(lines))
            return 1 if lines[-1].startswith("VIOLATION") else 0
        return self._search(
            options.minutes, secrets.randbelow(10**9) * 1000 if options.first is None else options.first
        )

    def _search(self, minutes: float, first: int) -> int:
        """Run fresh seeds until the time is over or the first violation."""
        began, began_cpu = time.monotonic(), time.process_time()
        found = self.simulator.run_seeds(seeds_until(began + minutes * 60, first))
        spent = time.process_time() - began_cpu
        print(f"seeds {first} to {first + found.seeds_count - 1}: {found}")
        print(f"{found.counts['events'] / spent * 60 / 1e6:.1f} M events a minute of one core, {spent:.0f} s")
        for seed, violation in found.violations.items():
            print(f"VIOLATION in seed {seed}: {violation}\nreplay it: {self.simulator.command} --seed {seed}")
        return 1 if found.violations else 0

    def _show_mutants(self, seeds_max: int) -> int:
        """A row of the documented table for each planted bug."""
        survivors = 0
        with_references = any(mutant.reference for mutant in self.mutants)
        headings = ["Bug", *(["Reference"] if with_references else []), "Seeds", "What broke"]
        print(f"| {' | '.join(headings)} |\n| {' | '.join('---' for _ in headings)} |")
        for mutant in self.mutants:
            killed = self.simulator.seeds_needed(mutant, seeds_max)
            survivors += killed is None
            seeds, broken = (f"over {seeds_max}", "nothing") if killed is None else (killed[0], killed[1].split(":")[0])
            cells = [mutant.bug, *([mutant.reference] if with_references else []), str(seeds), broken]
            print(f"| {' | '.join(cells)} |", flush=True)
        return 1 if survivors else 0

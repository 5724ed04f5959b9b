"""`./dev sim --consumers`: replays one seed with its trace, searches fresh seeds, or shows what kills each mutant."""

from __future__ import annotations

import argparse
import secrets
import time

from tests.consumers_simulation.mutants import MUTANTS
from tests.consumers_simulation.search import replay, run_seeds
from tests.simulation.search import seeds_until


def search(minutes: float, first: int) -> int:
    """Fresh seeds until the time is over, or the first violation."""
    found = run_seeds(seeds_until(time.monotonic() + minutes * 60, first))
    print(f"seeds {first} to {first + found.seeds_count - 1}: {found}")
    for seed, violation in found.violations.items():
        print(f"VIOLATION in seed {seed}: {violation}\nreplay it: ./dev sim --consumers --seed {seed}")
    return 1 if found.violations else 0


def show_mutants(seeds_max: int) -> int:
    """A row of the table in docs/consumers.md for each planted bug."""
    survivors = 0
    print("| Bug | Seeds | What broke |\n| --- | --- | --- |")
    for mutant in MUTANTS.values():
        killed = mutant.seeds_needed(seeds_max)
        survivors += killed is None
        seeds, broken = (
            (f"over {seeds_max}", "nothing") if killed is None else (str(killed[0]), killed[1].split(":")[0])
        )
        print(f"| {mutant.bug} | {seeds} | {broken} |", flush=True)
    return 1 if survivors else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev sim --consumers", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and print its trace")
    parser.add_argument("--minutes", type=float, default=1.0, help="search fresh seeds for so long")
    parser.add_argument("--first", type=int, help="search from this seed on, not from a random one")
    parser.add_argument(
        "--mutants", action="store_true", help="plant each known bug, and count the seeds that it survives"
    )
    parser.add_argument("--seeds", type=int, default=2000, help="give a mutant up after so many seeds")
    options = parser.parse_args()
    if options.mutants:
        return show_mutants(options.seeds)
    if options.seed is not None:
        lines = replay(options.seed)
        print("\n".join(lines))
        return 1 if lines[-1].startswith("VIOLATION") else 0
    return search(options.minutes, secrets.randbelow(10**9) * 1000 if options.first is None else options.first)


if __name__ == "__main__":
    raise SystemExit(main())

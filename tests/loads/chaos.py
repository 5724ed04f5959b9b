"""`./dev chaos loads`: loads killed at four points and at random times, on every kind of table.

    python -m tests.loads.chaos [--times N] [--random N] [--table NAME] [--seed N]

Prints the kills of each table, and ends with 1 when one is not what its log gives: each offset once, or, in a table of
upserts, the last row of each key.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.loads.kills import TABLES, Outcome, run_points, run_random

RANDOM_TABLES = ("delta-local", "delta-s3")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos loads", description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="kills of each victim at each point (default 5)")
    parser.add_argument("--random", type=int, default=50, help="kills at random times of each Delta table (default 50)")
    parser.add_argument("--table", choices=TABLES, action="append", help="only this one (repeatable)")
    parser.add_argument("--seed", type=int, default=2011)
    chosen = parser.parse_args()
    failed = 0
    for outcome in _outcomes(chosen):
        print(outcome, flush=True)
        failed += bool(outcome.problems)
    print(f"{failed} tables are wrong" if failed else "each table is what its log gives")
    return 1 if failed else 0


def _outcomes(chosen: argparse.Namespace) -> Iterator[Outcome]:
    for table in chosen.table or TABLES:
        if chosen.times:
            yield run_points(table, chosen.times)
        if chosen.random and table in RANDOM_TABLES:
            yield run_random(table, chosen.random, chosen.seed)


if __name__ == "__main__":
    sys.exit(main())

"""`./dev chaos mirror`: a mirror through stalls of its source, its target and itself, and through kills.

    python -m tests.mirror.chaos [--stalls N] [--rounds N] [--seed N] [--transactional]

Prints the figures of each round, and ends with 1 when a record is missing, out of order, or twice without a report.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from ottla.model.errors import OttlaError
from tests.mirror.stalls import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos mirror", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stalls", type=int, default=100, help="of each round (default 100)")
    parser.add_argument("--rounds", type=int, default=1, help="how many rounds (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--transactional", action="store_true", help="no record may be committed twice")
    chosen = parser.parse_args()
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        try:
            outcome = run(chosen.stalls, seed, is_transactional=chosen.transactional)
        except (OttlaError, AssertionError) as error:
            failed += 1
            print(f"seed {seed}: FAILED", *traceback.format_exception(error), sep="\n", flush=True)
            continue
        print(outcome, flush=True)
        failed += bool(outcome.problems)
    print(f"{failed} rounds are wrong" if failed else "every record was copied, in order; what came twice was reported")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

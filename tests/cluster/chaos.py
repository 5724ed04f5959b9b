"""`./dev chaos cluster`: kills and pauses of brokers and ZooKeeper under load, judged by the history checker.

    python -m tests.cluster.chaos [--rounds N] [--faults N] [--seed N] [--protocol NAME] [--only FAULT ...]

Each round takes some of the kinds of faults, others each time, and strikes with them in random order.  Prints every
count of every round and ends with 1 when any of them is not what it must be.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ottla.testing.zookeeper import ZooKeeperUnavailable
from tests.cluster.chaos_run import run_cluster
from tests.cluster.faults import FAULTS
from tests.history.chaos import PROTOCOLS

# With fewer, most pairs of kinds would never meet in a round.
KINDS_MIN: Final = 3


def mixed(names: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` faults of some of these kinds; all kinds chosen are as frequent."""
    rng = random.Random(seed)
    kinds = rng.sample(sorted(names), rng.randint(min(KINDS_MIN, len(names)), len(names)))
    plan = [kinds[number % len(kinds)] for number in range(count)]
    rng.shuffle(plan)
    return plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how many runs (default 3)")
    parser.add_argument("--faults", type=int, default=20, help="faults of each run (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="range", help="the group's (default range)")
    parser.add_argument("--only", choices=sorted(FAULTS), action="append", help="only this fault (repeatable)")
    chosen = parser.parse_args()
    failed = 0
    totals: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        plan = mixed(chosen.only or sorted(FAULTS), chosen.faults, seed)
        try:
            result = run_cluster(PROTOCOLS[chosen.protocol], plan, seed=seed)
        except ZooKeeperUnavailable as reason:
            print(f"nothing can be run: {reason}; {reason.hint}")
            return 1
        failed += not result.is_clean
        totals += result.strikes
        totals["acknowledged"] += result.report.figures["sends_ok"]
        print(f"seed={seed} {'ok' if result.is_clean else 'FAILED'} {result}", flush=True)
    print(" ".join(f"{name}={count}" for name, count in sorted(totals.items())))
    print(f"{failed} of the runs failed" if failed else "all runs kept every promise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""`./dev chaos cluster`: kills and pauses of brokers and ZooKeeper under load, judged by the history checker.

    python -m tests.cluster.chaos [--rounds N] [--faults N] [--seed N] [--protocol NAME] [--only FAULT ...]

Power cuts, disks and partitions of the network need root and a few packages (README.md beside this file); without
them they are left out, and it is said why.  Each round takes some of the kinds of faults, others each time, and strikes
with them in random order.  Prints every count of every round and ends with 1 when any is not what it must be.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.testing.zookeeper import ZooKeeperUnavailable
from tests.cluster import isolation
from tests.cluster.chaos_run import new_network, run_cluster
from tests.cluster.fault_table import ALL_FAULTS, PRIVATE_FAULTS
from tests.cluster.network import Network
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
    parser.add_argument("--only", choices=sorted(ALL_FAULTS), action="append", help="only this fault (repeatable)")
    parser.add_argument("--evidence", action="store_true", help="print what each fault was seen to do")
    parser.add_argument("--plain", action="store_true", help="no namespaces: only what needs no privilege")
    chosen = parser.parse_args()
    names, network = _possible(chosen.only or sorted(ALL_FAULTS), is_plain=chosen.plain)
    if not names:
        return 1
    failed = 0
    totals: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        plan = mixed(names, chosen.faults, seed)
        try:
            result = run_cluster(PROTOCOLS[chosen.protocol], plan, seed=seed, network=network)
        except ZooKeeperUnavailable as reason:
            print(f"nothing can be run: {reason}; {reason.hint}")
            return 1
        failed += not result.is_clean
        totals += result.strikes
        totals["acknowledged"] += result.report.figures["sends_ok"]
        if chosen.evidence:
            print(*result.evidence, sep="\n")
        print(f"seed={seed} {'ok' if result.is_clean else 'FAILED'} {result}", flush=True)
    print(" ".join(f"{name}={count}" for name, count in sorted(totals.items())))
    print(f"{failed} of the runs failed" if failed else "all runs kept every promise")
    return 1 if failed else 0


def _possible(names: Sequence[str], *, is_plain: bool) -> tuple[list[str], Network | None]:
    """Those of the faults that this process can do, and the network for them; it may become another process before."""
    if not is_plain and not isolation.is_isolated():
        reason = isolation.missing()
        if reason is None:
            isolation.enter([sys.executable, "-m", "tests.cluster.chaos", *sys.argv[1:]])
        print(f"skipped: {reason}; so not done: {' '.join(sorted(PRIVATE_FAULTS.keys() & set(names)))}", flush=True)
    if not isolation.is_isolated():
        return [name for name in names if name not in PRIVATE_FAULTS], None
    return list(names), new_network(Path(tempfile.mkdtemp(prefix="ottla-chaos-network-")) / "namespaces")


if __name__ == "__main__":
    sys.exit(main())

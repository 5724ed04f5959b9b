"""The long form of test_histories.py: `./dev chaos`, round after round with other seeds.

    python -m tests.history.chaos [--rounds N] [--faults N] [--seed N] [--protocol range|cooperative|consumer]

Prints every count of every round and ends with 1 when any of them is not what it must be.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tests.history.clients import CONSUMER, COOPERATIVE, RANGE, MemberKind
from tests.history.workload import mixed_faults, run_faults

PROTOCOLS: Final[Mapping[str, Sequence[MemberKind]]] = {
    "range": RANGE,
    "cooperative": COOPERATIVE,
    "consumer": CONSUMER,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description="kills of broker and members, checked histories")
    parser.add_argument("--rounds", type=int, default=3, help="how many runs of each protocol (default 3)")
    parser.add_argument("--faults", type=int, default=40, help="faults of each run (default 40, about a minute)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), action="append", help="only this one (repeatable)")
    chosen = parser.parse_args()
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        for protocol in chosen.protocol or sorted(PROTOCOLS):
            result = run_faults(PROTOCOLS[protocol], mixed_faults(chosen.faults, seed), seed=seed)
            failed += not result.is_clean
            print(f"protocol={protocol} seed={seed} {'ok' if result.is_clean else 'FAILED'} {result}", flush=True)
    print(f"{failed} of the runs failed" if failed else "all runs kept every promise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

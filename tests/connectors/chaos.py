"""`./dev chaos connectors`: groups of `ottla.ConsumerConnector`s, each member a process, through many changes.

    python -m tests.connectors.chaos [--home NAME] [--rounds N] [--faults N] [--seed N] [--only FAULT ...]

Prints every count of every round and ends with 1 when any is not what it must be.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from ottla.model.errors import OttlaError
from ottla.testing.zookeeper import ZooKeeperUnavailable
from tests.connectors.faults import FAULTS_OF
from tests.connectors.homes import ApacheKafkaHome, BrokerHome, Home, ZooKeeperBackend
from tests.connectors.run import LONG, SHORT, run
from tests.connectors.times import measure, table
from tests.peers.apache_kafka import KafkaUnavailable

HOMES: Final[Mapping[str, type[Home]]] = {
    ZooKeeperBackend.name: ZooKeeperBackend,
    BrokerHome.name: BrokerHome,
    ApacheKafkaHome.name: ApacheKafkaHome,
}


def mixed(names: Sequence[str], count: int, seed: int) -> list[str]:
    """`count` faults, all kinds equally frequent, in random order."""
    chance = random.Random(seed)
    kinds = sorted(names)
    chance.shuffle(kinds)
    plan = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(plan)
    return plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos connectors", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--home", choices=sorted(HOMES), default=ZooKeeperBackend.name, help="where groups are (zookeeper)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how many runs (default 3)")
    parser.add_argument("--faults", type=int, default=20, help="faults of each run (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--only", action="append", metavar="FAULT", help="only this fault (repeatable)")
    parser.add_argument("--evidence", action="store_true", help="print what each fault was seen to do")
    parser.add_argument("--small", action="store_true", help="few partitions and a small herd")
    parser.add_argument(
        "--times", metavar="N[,N...]", help="only measure: members that join, leave and die, so many in all"
    )
    parser.add_argument("--changes", type=int, default=5, help="of each kind, with --times (default 5)")
    chosen = parser.parse_args()
    if chosen.times is not None:
        return _times(chosen, [int(count) for count in chosen.times.split(",")])
    known = FAULTS_OF[chosen.home]
    unknown = set(chosen.only or ()) - known.keys()
    if unknown:
        parser.error(f"{sorted(unknown)}: there are {', '.join(sorted(known))}")
    failed = 0
    took_s: dict[str, list[float]] = {}
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        plan = mixed(chosen.only or sorted(known), chosen.faults, seed)
        print(f"home={chosen.home} seed={seed} plan: {' '.join(plan)}", flush=True)
        try:
            result = run(HOMES[chosen.home], plan, seed=seed, size=SHORT if chosen.small else LONG)
        except (ZooKeeperUnavailable, KafkaUnavailable) as reason:
            print(f"nothing can be run: {reason}")
            return 1
        except (OttlaError, AssertionError) as error:
            failed += 1
            print(f"seed={seed} FAILED", *traceback.format_exception(error), sep="\n", flush=True)
            continue
        failed += not result.is_clean
        for what, took in result.took_s.items():
            took_s.setdefault(what, []).extend(took)
        if chosen.evidence:
            print(*result.evidence, sep="\n")
        print(f"seed={seed} {'ok' if result.is_clean else 'FAILED'} {result}", flush=True)
    for what, took in sorted(took_s.items()):
        print(f"{what}: {len(took)} times, consumed after median {median(took):.2f} s, worst {max(took):.2f} s")
    print(f"{failed} of the runs failed" if failed else "all runs kept every promise")
    return 1 if failed else 0


def _times(chosen: argparse.Namespace, counts: Sequence[int]) -> int:
    results = []
    for count in counts:
        result = measure(chosen.home, HOMES[chosen.home], count, chosen.changes, chosen.seed)
        print(f"members={count} {'ok' if result.is_clean else 'FAILED'} {result}", flush=True)
        results.append((count, result))
    print(table(chosen.home, results))
    return 0 if all(result.is_clean for _, result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

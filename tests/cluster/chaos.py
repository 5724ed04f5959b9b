"""`./dev chaos cluster`: kills and pauses of brokers and ZooKeeper under load, judged by the history checker.

    python -m tests.cluster.chaos [--rounds N] [--faults N] [--seed N] [--protocol NAME] [--only FAULT ...]

Power cuts, disks and partitions of the network need root and a few packages (README.md beside this file); without
them they are left out, and the reason is printed.  Each round takes a random choice of faults and strikes
with them in random order.  Prints every count of every round and ends with 1 when any is not what it must be.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError
from ottla.testing.zookeeper import ZooKeeperUnavailable
from tests.cluster import isolation
from tests.cluster.chaos_run import CLUSTER_SETTINGS, DIFFERS, NOT_CONVERGED, new_network, run_cluster
from tests.cluster.fault_table import ALL_FAULTS, PLAIN_FAULTS, PRIVATE_FAULTS, SLOW_FAULTS
from tests.cluster.group_faults import STATIC_MEMBER_FAULTS
from tests.cluster.mutated_broker import MUTATIONS
from tests.cluster.network import Network
from tests.history.chaos import PROTOCOLS
from tests.history.clients import RANGE

# With fewer, most pairs of kinds would never meet in a round.
KINDS_MIN: Final = 3
# With the cluster's start and its quiet end less than a minute on a machine that has time.
QUICK_COUNT: Final = 2


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
    parser.add_argument(
        "--control", choices=sorted(MUTATIONS), help="with this fault planted in the brokers: must lose"
    )
    parser.add_argument("--evidence", action="store_true", help="print what each fault was seen to do")
    parser.add_argument("--plain", action="store_true", help="no namespaces: only what needs no privilege")
    parser.add_argument("--private", action="store_true", help="only what needs privileges")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_COUNT} faults that are soon over, in each run")
    chosen = parser.parse_args()
    wanted = chosen.only or sorted(PRIVATE_FAULTS if chosen.private else ALL_FAULTS)
    if chosen.quick:
        wanted = [name for name in wanted if name not in SLOW_FAULTS]
        chosen.faults = QUICK_COUNT
    if chosen.protocol == "consumer":
        wanted = [name for name in wanted if name not in STATIC_MEMBER_FAULTS]
    if chosen.control is not None:
        wanted = sorted(set(MUTATIONS[chosen.control].plan))
    names, network = possible(wanted, PLAIN_FAULTS, "tests.cluster.chaos", is_plain=chosen.plain)
    if not names:
        return 1
    with ExitStack() as stack:
        if network is not None:
            stack.callback(network.close)
        seeds = range(chosen.seed, chosen.seed + chosen.rounds)
        try:
            if chosen.control is not None:
                return _control(chosen.control, seeds, network)
            return _rounds(chosen, names, seeds, network)
        except ZooKeeperUnavailable as reason:
            print(f"nothing can be run: {reason}; {reason.hint}")
            return 1


def _rounds(chosen: argparse.Namespace, names: Sequence[str], seeds: Iterable[int], network: Network | None) -> int:
    failed = 0
    totals: Counter[str] = Counter()
    for seed in seeds:
        plan = mixed(names, chosen.faults, seed)
        print(f"seed={seed} plan: {' '.join(plan)}", flush=True)
        try:
            result = run_cluster(PROTOCOLS[chosen.protocol], plan, seed=seed, network=network)
        except ZooKeeperUnavailable:
            raise
        except (OttlaError, AssertionError) as error:
            # A state that was not reached, or a process that did not start: the message has the last state.
            failed += 1
            print(f"seed={seed} FAILED {' '.join(plan)}", *traceback.format_exception(error), sep="\n", flush=True)
            continue
        failed += not result.is_clean
        totals += result.strikes
        totals["acknowledged"] += result.report.figures["sends_ok"]
        if chosen.evidence:
            print(*result.evidence, sep="\n")
        print(f"seed={seed} {'ok' if result.is_clean else 'FAILED'} {result}", flush=True)
    print(" ".join(f"{name}={count}" for name, count in sorted(totals.items())))
    print(f"{failed} of the runs failed" if failed else "all runs kept every promise")
    return 1 if failed else 0


def _control(name: str, seeds: Iterable[int], network: Network | None) -> int:
    """Rounds with a planted fault until one of them shows it."""
    planted = MUTATIONS[name]
    command = (sys.executable, "-m", "tests.cluster.mutated_broker", name)
    for seed in seeds:
        result = run_cluster(
            RANGE,
            planted.plan,
            seed=seed,
            command=command,
            settings={**CLUSTER_SETTINGS, **planted.settings},
            network=network,
        )
        signs = [sign for sign in (DIFFERS, NOT_CONVERGED) if any(sign in problem for problem in result.problems)]
        noticed = result.report.found & planted.expected or signs
        print(f"control={name} seed={seed} {'noticed' if noticed else 'NOT NOTICED'} {result}", flush=True)
        if result.kept_directory is not None:
            shutil.rmtree(result.kept_directory)
        if noticed:
            return 0
    print(f"{name} was not noticed")
    return 1


def possible(
    names: Sequence[str], plain: Collection[str], module: str, *, is_plain: bool
) -> tuple[list[str], Network | None]:
    """The faults that this process can inject, and the network for them.  `plain` need no privilege.

    May first replace the process by one of this `module` in separate namespaces.
    """
    if not is_plain and not isolation.is_isolated():
        reason = isolation.missing()
        if reason is None:
            isolation.enter([sys.executable, "-m", module, *sys.argv[1:]])
        print(f"skipped: {reason}; so not done: {' '.join(sorted(set(names) - set(plain)))}", flush=True)
    if not isolation.is_isolated():
        return [name for name in names if name in plain], None
    return list(names), new_network(Path(tempfile.mkdtemp(prefix="ottla-network-")))


if __name__ == "__main__":
    sys.exit(main())

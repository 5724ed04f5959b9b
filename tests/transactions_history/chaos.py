"""`./dev chaos transactions`: transactions through kills, pauses, partitions of the network and power cuts.

    python -m tests.transactions_history.chaos [--apache] [--rounds N] [--faults N] [--dense] [--seed N]
                                               [--only FAULT ...]

Three brokers (with `--apache` those of Apache Kafka), producers of inputs, a group of workers that append results in
transactions, and readers of what is committed.  Prints every count of every round and ends with 1 when any is not what
it must be.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from ottla.model.errors import OttlaError
from ottla.testing.zookeeper import ZooKeeperUnavailable
from tests.cluster.chaos import mixed, possible
from tests.cluster.chaos_run import PLAIN_COMMAND
from tests.cluster.disk_faults import DISK_FAULTS
from tests.cluster.faults import FAULTS
from tests.cluster.network_faults import NETWORK_FAULTS
from tests.cluster.target import Fault
from tests.history.clients import MemberKind, ReaderKind
from tests.interop.clients.recorded_clients import java_transactions
from tests.peers.answering import NotAnswering
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable
from tests.transactions_history.coordinator_faults import PLAIN_COORDINATOR_FAULTS, PRIVATE_COORDINATOR_FAULTS
from tests.transactions_history.mutated_broker import MUTATIONS
from tests.transactions_history.planted_faults import PLANTED
from tests.transactions_history.report import Anomaly
from tests.transactions_history.run import (
    PAUSE_S,
    POWER_CUT,
    SHORT_PAUSE_S,
    TransactionsResult,
    run_transactions,
)

# What stops a process, ends it, or leaves it without another; by their names.
_POWER_CUTS: Final = {name: fault for name, fault in DISK_FAULTS.items() if name.startswith(POWER_CUT)}
# These end in seconds, and act on any cluster.
_PARTITIONS: Final = {
    name: NETWORK_FAULTS[name]
    for name in (
        "leader-from-followers",
        "leader-from-clients",
        "leader-alone",
        "brokers-in-a-ring",
        "zookeeper-alone",
        "one-way",
        "lossy-between-brokers",
        "lossy-to-clients",
    )
}
PLAIN_FAULTS: Final[Mapping[str, Fault]] = {
    **{name: fault for name, fault in FAULTS.items() if name != "starve-broker"},
    **PLAIN_COORDINATOR_FAULTS,
}
ALL_FAULTS: Final[Mapping[str, Fault]] = {**PLAIN_FAULTS, **_PARTITIONS, **_POWER_CUTS, **PRIVATE_COORDINATOR_FAULTS}
# Apache Kafka's brokers have no ZooKeeper.
ZOOKEEPER_FAULTS: Final = frozenset({"kill-zookeeper", "pause-zookeeper"})
GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "kills": frozenset(name for name in ALL_FAULTS if name.startswith("kill-")),
    "pauses": frozenset(name for name in ALL_FAULTS if name.startswith("pause-")),
    "partitions": frozenset({*_PARTITIONS, *PRIVATE_COORDINATOR_FAULTS}),
    "power_cuts": frozenset(_POWER_CUTS),
}
# What makes a planted fault show.
CONTROL_FAULTS: Final = ("kill-member", "replace-member", "kill-transaction-coordinator")
# By planted fault: at least one of these must be found.
EXPECTED: Final[Mapping[str, frozenset[Anomaly]]] = {
    **{name: planted.expected for name, planted in PLANTED.items()},
    **{name: planted.expected for name, planted in MUTATIONS.items()},
}
LIBRDKAFKA: Final = "librdkafka"
JAVA: Final = "java"


def _module(name: str) -> tuple[str, ...]:
    return sys.executable, "-m", f"tests.transactions_history.{name}"


READER_MODULE: Final = "reading_librdkafka"
LIBRDKAFKA_WORKER: Final = MemberKind("transactions-librdkafka", _module("working_librdkafka"), "range")
LIBRDKAFKA_READER: Final = ReaderKind("librdkafka", _module(READER_MODULE))
STABLE_OFFSETS_READER: Final = ReaderKind("stable-offsets", _module("asking_stable_offsets"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos transactions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--apache", action="store_true", help="brokers of Apache Kafka, for comparison")
    parser.add_argument("--rounds", type=int, default=3, help="how many runs (default 3)")
    parser.add_argument("--faults", type=int, default=20, help="faults of each run (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument(
        "--library",
        choices=(LIBRDKAFKA, JAVA),
        action="append",
        help="workers of this one only (repeatable): librdkafka ends transactions as before KIP-890, java as after it",
    )
    parser.add_argument("--only", choices=sorted(ALL_FAULTS), action="append", help="only this fault (repeatable)")
    parser.add_argument(
        "--control",
        choices=sorted(EXPECTED),
        help="with this fault planted in clients or in brokers: must be judged wrong",
    )
    parser.add_argument("--dense", action="store_true", help="at most a second between two faults, instead of four")
    parser.add_argument("--evidence", action="store_true", help="print what each fault was seen to do")
    parser.add_argument("--plain", action="store_true", help="no namespaces: only what needs no privilege")
    chosen = parser.parse_args()
    if chosen.apache and chosen.control in MUTATIONS:
        parser.error(f"{chosen.control} is a fault of Ottla's brokers")
    try:
        # Before the namespaces, which have no network to download what is missing.
        if chosen.control in PLANTED:
            kinds, readers = _planted(chosen.control)
        elif chosen.control is not None:
            kinds, readers = _clients([LIBRDKAFKA], is_required=True)
        else:
            kinds, readers = _clients(chosen.library or [LIBRDKAFKA, JAVA], is_required=chosen.library is not None)
    except (KafkaUnavailable, PeerUnavailable) as reason:
        print(f"nothing can be run: {reason}")
        return 1
    wanted = chosen.only or sorted(ALL_FAULTS if chosen.control is None else CONTROL_FAULTS)
    if chosen.apache:
        wanted = [name for name in wanted if name not in ZOOKEEPER_FAULTS]
    names, network = possible(wanted, PLAIN_FAULTS, "tests.transactions_history.chaos", is_plain=chosen.plain)
    if chosen.apache and network is None:
        print("nothing can be run: brokers of Apache Kafka need namespaces here")
        return 1
    command = PLAIN_COMMAND if chosen.control not in MUTATIONS else (*_module("mutated_broker"), chosen.control)
    if not names:
        return 1
    with ExitStack() as stack:
        if network is not None:
            stack.callback(network.close)
        try:
            run = partial(
                run_transactions,
                kinds,
                readers,
                ALL_FAULTS,
                network=network,
                is_apache=chosen.apache,
                command=command,
                pause_s=SHORT_PAUSE_S if chosen.dense else PAUSE_S,
            )
            return _rounds(chosen, names, run) if chosen.control is None else _control(chosen, names, run)
        except (ZooKeeperUnavailable, KafkaUnavailable) as reason:
            print(f"nothing can be run: {reason}")
            return 1


def _clients(libraries: Iterable[str], *, is_required: bool) -> tuple[list[MemberKind], list[ReaderKind]]:
    kinds, readers = [], [LIBRDKAFKA_READER, STABLE_OFFSETS_READER]
    if LIBRDKAFKA in libraries:
        kinds.append(LIBRDKAFKA_WORKER)
    if JAVA in libraries:
        try:
            worker, reader = java_transactions()
        except (KafkaUnavailable, PeerUnavailable) as reason:
            if is_required:
                raise
            print(f"without {JAVA}: {reason}", flush=True)
        else:
            kinds.append(worker)
            readers.append(reader)
    return kinds, readers


def _planted(name: str) -> tuple[list[MemberKind], list[ReaderKind]]:
    """One kind of client has the fault, the other has none."""
    client = PLANTED[name].client
    command = (*_module("planted_faults"), name, client)
    if client == READER_MODULE:
        return [LIBRDKAFKA_WORKER], [ReaderKind(LIBRDKAFKA, command), STABLE_OFFSETS_READER]
    return [MemberKind(LIBRDKAFKA_WORKER.library, command, "range")], [LIBRDKAFKA_READER, STABLE_OFFSETS_READER]


def _control(chosen: argparse.Namespace, names: Sequence[str], run: Callable[..., TransactionsResult]) -> int:
    """Rounds with a planted fault until one of them shows it."""
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        result = run(mixed(names, chosen.faults, seed), seed=seed)
        is_noticed = result.report.found & EXPECTED[chosen.control]
        print(f"control={chosen.control} seed={seed} {'noticed' if is_noticed else 'NOT NOTICED'} {result}", flush=True)
        if result.kept_directory is not None:
            shutil.rmtree(result.kept_directory)
        if is_noticed:
            return 0
    print(f"{chosen.control} was not noticed")
    return 1


def _rounds(chosen: argparse.Namespace, names: Sequence[str], run: Callable[..., TransactionsResult]) -> int:
    failed = 0
    totals: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        plan = mixed(names, chosen.faults, seed)
        print(f"seed={seed} plan: {' '.join(plan)}", flush=True)
        began_s = time.monotonic()
        try:
            result = run(plan, seed=seed)
        except (ZooKeeperUnavailable, KafkaUnavailable):
            raise
        except (OttlaError, AssertionError, NotAnswering) as error:
            # A state that was not reached, or a process that did not start: the message has the last state.
            failed += 1
            print(f"seed={seed} FAILED {' '.join(plan)}", *traceback.format_exception(error), sep="\n", flush=True)
            continue
        failed += not result.is_clean
        totals += result.strikes
        for name in (
            "transactions_ok",
            "transactions_failed",
            "transactions_unknown",
            "transactions_given_up",
            "results",
        ):
            totals[name] += result.report.figures[name]
        if chosen.evidence:
            print(*result.evidence, sep="\n")
        took_s = time.monotonic() - began_s
        print(f"seed={seed} {'ok' if result.is_clean else 'FAILED'} after {took_s:.0f} s: {result}", flush=True)
    print(" ".join(f"{name}={count}" for name, count in sorted(totals.items())))
    print(" ".join(f"{group}={sum(totals[each] for each in members)}" for group, members in GROUPS.items()))
    print(f"{failed} of the runs failed" if failed else "all runs kept every promise")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

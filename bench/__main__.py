"""./dev bench, or python -m bench: exit status 0 = floors met, 1 = a floor missed, 2 = could not run."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.peers.answering import NotAnswering
from tests.peers.kafka_jars import KafkaUnavailable, install, kafka_version

from bench.machine import describe_commit, describe_machine
from bench.outcome import Results
from bench.peers.names import APACHE_KAFKA, PEERS
from bench.peers.peer import HOUSEKEEPING
from bench.raw_client.build import BUILD_DIR, NoRawClient, build_raw_client
from bench.raw_client.load import LoadFailed
from bench.runner import NotEnoughDisk, Plan, Runner
from bench.scenarios import fresh_start
from bench.scenarios.fetch import fetch_scenarios
from bench.scenarios.produce import SPREADS, produce_scenarios
from bench.scenarios.scenario import Scenario
from bench.soak.run import NAME as SOAK
from bench.soak.run import run_soak
from bench.studies import STUDIES, run_study
from bench.table import whole_table
from bench.wire import BrokerRefused

ROOT: Final = Path(__file__).parents[1]
RESULTS_DIR: Final = Path(__file__).with_name("results")


def parse(arguments: list[str]) -> argparse.Namespace:
    studies = "".join(f"\n  ./dev bench {study.name:<12} {study.summary}" for study in STUDIES.values())
    studies += f"\n  ./dev bench {SOAK:<12} an hour of mixed load: whether memory, descriptors or latency drift"
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description="Ottla beside Apache Kafka, in the same run.",
        epilog=f"studies of their own (each has --help):{studies}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one partition, 2 s a line, 2 rounds (some minutes)")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only these; * and ? match; repeatable")
    parser.add_argument("--peer", action="append", choices=list(PEERS), help="only these; repeatable")
    parser.add_argument("--only-ottla", action="store_true", help="without Apache Kafka: no ratios, no Java needed")
    parser.add_argument("--seconds", type=float, help="of a measured line in one round (5; --quick 2)")
    parser.add_argument("--rounds", type=int, help="of each peer in turn (3; --quick 2)")
    parser.add_argument("--work-dir", type=Path, default=BUILD_DIR, help="where data goes, on the disk to be measured")
    parser.add_argument("--results-dir", type=Path, default=RESULTS_DIR)
    parser.add_argument("--list", action="store_true", help="name the scenarios and stop")
    options = parser.parse_args(arguments)
    if options.only_ottla:
        options.peer = [name for name in options.peer or PEERS if name != APACHE_KAFKA]
    options.seconds = options.seconds or (2.0 if options.quick else 5.0)
    options.rounds = options.rounds or (2 if options.quick else 3)
    return options


def choose_scenarios(options: argparse.Namespace) -> tuple[list[Scenario], bool]:
    """The scenarios of running peers, and whether fresh starts are measured too."""
    spreads = (1,) if options.quick and not options.scenario else SPREADS
    scenarios: list[Scenario] = [*produce_scenarios(options.seconds, spreads), *fetch_scenarios(options.seconds)]
    if not options.scenario:
        return scenarios, True
    wanted = [each for each in scenarios if any(fnmatchcase(each.name, pattern) for pattern in options.scenario)]
    has_fresh_start = any(fnmatchcase(fresh_start.NAME, pattern) for pattern in options.scenario)
    return wanted, has_fresh_start


def run(options: argparse.Namespace) -> int:
    scenarios, has_fresh_start = choose_scenarios(options)
    if options.list:
        print("\n".join([fresh_start.NAME, *(each.name for each in scenarios)]))
        return 0
    if not scenarios and not has_fresh_start:
        print("bench: no scenario has such a name; --list shows them", file=sys.stderr)
        return 2
    peers = tuple(name for name in PEERS if not options.peer or name in options.peer)
    started = datetime.now(UTC).replace(microsecond=0)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    settings = {"acks": "all", "value_bytes": 200, "seconds": options.seconds, "rounds": options.rounds}
    about: dict[str, object] = {
        "started": started.isoformat(),
        **describe_commit(ROOT),
        "machine": describe_machine(options.work_dir),
    }
    about |= {"settings": settings, "not_default": HOUSEKEEPING}
    build_raw_client()
    if APACHE_KAFKA in peers:
        install()
        about["apache_kafka"] = kafka_version()
    results = Results(about)
    with tempfile.TemporaryDirectory(prefix="data-", dir=options.work_dir, ignore_cleanup_errors=True) as work_dir:
        warm_s = 10 if options.quick else 25
        plan = Plan(peers, scenarios, has_fresh_start, options.rounds, warm_s, Path(work_dir))
        try:
            Runner(plan, results, say, show).run()
        finally:
            write(results, options.results_dir, started)
    return 1 if results.has_missed_a_floor else 0


def write(results: Results, results_dir: Path, started: datetime) -> None:
    """Also of a run that was cut short: what it has measured is measured."""
    if not results.lines:
        return
    results_dir.mkdir(parents=True, exist_ok=True)
    stem = f"{started:%Y%m%dT%H%M%SZ}-{str(results.about['commit'])[:8]}"
    results.write_json(results_dir / f"{stem}.json")
    (results_dir / f"{stem}.txt").write_text(whole_table(results))
    say(f"written to {results_dir / stem}.json and .txt")


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def show(text: str) -> None:
    print(text, flush=True)


def main(arguments: list[str]) -> int:
    # As Ctrl-C: contexts end, so that no broker is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if arguments and arguments[0] in STUDIES:
            return run_study(STUDIES[arguments[0]], arguments[1:])
        if arguments and arguments[0] == SOAK:
            return run_soak(arguments[1:])
        return run(parse(arguments))
    except (NoRawClient, KafkaUnavailable, NotAnswering, NotEnoughDisk, LoadFailed, BrokerRefused) as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""python -m tests.interop.suites NAME --source DIR: what tests/interop/suites/run starts."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.interop.expected_failures import judge, read_entries
from tests.interop.suites.running import run_suite
from tests.interop.suites.suite import SUITES, NotThatSource
from tests.peers.either_broker import BrokerKind, either_broker
from tests.peers.kafka_jars import KafkaUnavailable


def main(arguments: list[str]) -> int:
    ours, chosen = arguments, []
    if "--" in arguments:
        ours, chosen = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    options = _parser().parse_args(ours)
    suite, kind = SUITES[options.name], BrokerKind(options.broker)
    source = options.source.resolve()
    started = time.monotonic()
    try:
        suite.version_of(source)
        with either_broker(kind, suite.settings) as bootstrap:
            results = run_suite(suite, source, bootstrap, chosen)
    except (NotThatSource, KafkaUnavailable, RuntimeError, subprocess.SubprocessError) as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 1
    entries = read_entries(suite.expected_failures)
    if chosen:
        entries = [entry for entry in entries if entry.test in results]
    verdict = judge(results, entries, kind)
    seconds = time.monotonic() - started
    sys.stdout.writelines(f"{problem}\n" for problem in verdict.problems)
    sys.stdout.write(f"{suite.name} {_commit(source)} on {kind}: {verdict.counts} in {seconds:.0f} s; ")
    sys.stdout.write(f"{len(verdict.problems)} not as listed in {suite.expected_failures.name}\n")
    return 1 if verdict.problems else 0


def _parser() -> argparse.ArgumentParser:
    more = "Behind --: what pytest is to run instead of all."
    parser = argparse.ArgumentParser(prog="tests/interop/suites/run", description=__doc__, epilog=more)
    parser.add_argument("name", choices=sorted(SUITES), help="whose suite")
    parser.add_argument("--source", type=Path, required=True, help="a tree of that client's repository")
    parser.add_argument("--broker", choices=[*BrokerKind], default=BrokerKind.OTTLA)
    return parser


def _commit(source: Path) -> str:
    """The source's commit, where it is a checkout; its directory's name otherwise."""
    command = ["git", "-C", str(source), "rev-parse", "--short=12", "HEAD"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 and (source / ".git").exists() else source.name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""python -m tests.interop.librdkafka [ottla|apache-kafka] [number ...]"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.interop.expected_failures import Result, judge, read_entries
from tests.interop.librdkafka.build import LIBRDKAFKA_VERSION, runner_dir
from tests.interop.librdkafka.plan import (
    NO_AUTO_CREATE,
    SETTINGS,
    entries_of,
    jobs,
    jobs_without_auto_create,
    write_kafka_tools,
)
from tests.interop.librdkafka.runner import Outcome, run_jobs
from tests.peers.either_broker import BrokerKind, either_broker

EXPECTED = Path(__file__).with_name("expected_failures.txt")


def main(arguments: list[str]) -> int:
    kind = BrokerKind(arguments.pop(0)) if arguments and not arguments[0].isdigit() else BrokerKind.OTTLA
    outcomes: dict[str, Outcome] = {}
    entries = []
    with tempfile.TemporaryDirectory(prefix="librdkafka-") as scratch:
        extra = write_kafka_tools(Path(scratch))
        for settings, planned in ((SETTINGS, jobs(with_long=True)), (NO_AUTO_CREATE, jobs_without_auto_create())):
            chosen = [
                job for job in planned if not arguments or {job.number, f"{job.number}{job.suffix}"} & set(arguments)
            ]
            if not chosen:
                continue
            with either_broker(kind, settings) as bootstrap:
                outcomes |= run_jobs(chosen, runner_dir(), bootstrap, Path(scratch), extra)
            entries += [e for job in chosen for e in entries_of(job, read_entries(EXPECTED), kind)]
    for name, outcome in sorted(outcomes.items()):
        sys.stdout.write(f"{outcome.seconds:6.1f} s  {outcome.result:8} {name}\n")
        if outcome.result is Result.FAILED and name not in {entry.test for entry in entries}:
            sys.stdout.write(f"{outcome.output}\n\n")
    verdict = judge({name: outcome.result for name, outcome in outcomes.items()}, entries, kind)
    sys.stdout.write(f"librdkafka {LIBRDKAFKA_VERSION} on {kind}: {verdict.counts}\n")
    sys.stdout.writelines(f"{problem}\n" for problem in verdict.problems)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

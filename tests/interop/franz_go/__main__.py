"""python -m tests.interop.franz_go [ottla|apache-kafka] [pattern of go test]"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.expected_failures import judge, read_entries
from tests.interop.franz_go.running import ALL, SETTINGS, run_kgo_tests
from tests.peers.either_broker import BrokerKind, either_broker

EXPECTED = Path(__file__).with_name("expected_failures.txt")


def main(arguments: list[str]) -> int:
    kind = BrokerKind(arguments.pop(0)) if arguments and arguments[0] in set(BrokerKind) else BrokerKind.OTTLA
    pattern = arguments[0] if arguments else ALL
    with either_broker(kind, SETTINGS) as bootstrap:
        run = run_kgo_tests(bootstrap, pattern)
    entries = [each for each in read_entries(EXPECTED) if pattern == ALL or each.test in run.results]
    verdict = judge(run.results, entries, kind)
    if verdict.problems:
        sys.stdout.write(f"{run.output}\n")
    sys.stdout.write(f"franz-go's kgo on {kind}: {verdict.counts} in {run.seconds:.0f} s\n")
    sys.stdout.writelines(f"{problem}\n" for problem in verdict.problems)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`./dev chaos sink`: Spark's exactly-once sink while brokers, coordinators, workers and drivers are killed.

    python -m tests.sink.chaos [--brokers N] [--workers N] [--drivers N] [--rounds N] [--seed N] [--control]

Prints the kills of each round, and ends with 1 when a record of the source is not in the target once and in order.
`--control` writes at least once, without kills of brokers, and ends with 1 unless the judgement finds repeated records.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from ottla.model.errors import OttlaError
from tests.sink.kills import BROKER_FAULTS, DRIVER, WORKERS, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos sink", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--brokers", type=int, default=8, help="kills of each kind of broker (default 8)")
    parser.add_argument("--workers", type=int, default=6, help="kills of all workers (default 6)")
    parser.add_argument("--drivers", type=int, default=12, help="kills of the driver (default 12)")
    parser.add_argument("--rounds", type=int, default=1, help="how many rounds, each with new brokers (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--control", action="store_true", help="write at least once: that must be found")
    chosen = parser.parse_args()
    if chosen.control:
        # The coordinator and the leader of the deliveries are those of exactly once.
        outcome = run({DRIVER: chosen.drivers}, chosen.seed, delivery="at-least-once")
        print(outcome)
        return 0 if outcome.problems else 1
    kills = {**dict.fromkeys(BROKER_FAULTS, chosen.brokers), WORKERS: chosen.workers, DRIVER: chosen.drivers}
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.rounds):
        try:
            outcome = run(kills, seed, lambda text: print(text, flush=True))
        except (OttlaError, AssertionError) as error:
            failed += 1
            print(f"seed {seed}: FAILED", *traceback.format_exception(error), sep="\n", flush=True)
            continue
        print(outcome, *outcome.stops, sep="\n", flush=True)
        failed += bool(outcome.problems)
    print(f"{failed} rounds are wrong" if failed else "each record was written once")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m tests.interop.probes [script ...]: every difference, known or not."""

from __future__ import annotations

import sys

from ottla.model.errors import OttlaError
from tests.interop.probes.comparing import APACHE_KAFKA_SETTINGS, SCRIPTS, SETTINGS, compare, read_known, unexplained
from tests.peers.either_broker import BrokerKind, either_broker


def main(arguments: list[str]) -> int:
    status = 0
    with (
        either_broker(BrokerKind.OTTLA, SETTINGS) as ottla,
        either_broker(BrokerKind.APACHE_KAFKA, APACHE_KAFKA_SETTINGS) as kafka,
    ):
        for script in arguments or SCRIPTS:
            try:
                found = compare(script, ottla, kafka)
            except (AssertionError, OSError, OttlaError) as problem:
                sys.stdout.write(f"== {script}: {problem!r}\n")
                status = 1
                continue
            new = unexplained(script, found, read_known())
            sys.stdout.write(f"== {script}: {len(found)} differences, {len(new)} not explained\n")
            sys.stdout.writelines(f"{each}\n" for each in new)
            status = status or bool(new)
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

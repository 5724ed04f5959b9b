"""One run of kgo's tests against one broker."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.interop.clients.go_client import kgo_sources, kgo_tests
from tests.interop.expected_failures import Result

ALL: Final = "."
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
# The tests of pipelines copy half a million records three times, six ways beside each other; so many take some minutes
# of a machine with two cores.
RECORDS: Final = 50_000
ENDS_WITHIN_S: Final = 1_200
OUTPUT_SHOWN_CHARACTERS: Final = 20_000

_STARTED: Final = re.compile(r"^=== RUN +(\S+)$", re.MULTILINE)
_ENDED: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(", re.MULTILINE)
_RESULTS: Final = {"PASS": Result.PASSED, "FAIL": Result.FAILED, "SKIP": Result.SKIPPED}


class Run(NamedTuple):
    """Each test's result by its name, parts as `TestTxnEtl/range`; `output` is the end of what the program wrote."""

    results: dict[str, Result]
    output: str
    seconds: float


def run_kgo_tests(bootstrap: str, pattern: str = ALL, variables: Mapping[str, str] = {}) -> Run:
    """`variables` of the environment choose what else the tests do.  Raises PeerUnavailable."""
    program = kgo_tests()
    environment = {
        **os.environ,
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
        **variables,
    }
    command = [str(program), "-test.v", f"-test.run={pattern}", f"-test.timeout={ENDS_WITHIN_S}s"]
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=kgo_sources(),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=ENDS_WITHIN_S + 60,
        check=False,
    )
    output = f"{done.stderr[-OUTPUT_SHOWN_CHARACTERS:]}\n{done.stdout[-OUTPUT_SHOWN_CHARACTERS:]}"
    return Run(read_results(done.stdout), output, time.monotonic() - started)


def read_results(output: str) -> dict[str, Result]:
    """A test that started and did not end, since the program died or its time was over, has failed."""
    results = dict.fromkeys(_STARTED.findall(output), Result.FAILED)
    return results | {name: _RESULTS[word] for word, name in _ENDED.findall(output)}

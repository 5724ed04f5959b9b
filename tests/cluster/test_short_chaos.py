"""The short form of `./dev chaos cluster`: one round with a fresh random seed.

`./dev chaos cluster --rounds 1 --quick --seed N` repeats it.
"""

from __future__ import annotations

import secrets
import subprocess
import sys

import pytest

from tests.cluster import isolation

RUNS_WITHIN_S = 600

pytestmark = [pytest.mark.slow, pytest.mark.timeout(RUNS_WITHIN_S)]


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.cluster.chaos", "--rounds", "1", "--quick", *arguments]
    command += ["--seed", str(secrets.randbelow(1 << 31))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUNS_WITHIN_S, check=False)
    output = f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    print(output)  # noqa: T201  the seed and the plan are the result, also of a run that found nothing
    if "nothing can be run" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, output
    return done.stdout


def test_one_round_of_faults_without_privileges_breaks_no_guarantee() -> None:
    assert "all runs kept every promise" in run("--plain")


def test_one_round_of_disk_and_network_faults_breaks_no_guarantee() -> None:
    reason = isolation.missing()
    if reason is not None:
        pytest.skip(reason)
    assert "all runs kept every promise" in run("--private")

"""Clients of a leader that is cut off find the next one within ten seconds, and never see a log end decrease."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster import isolation
from tests.cluster.cut_off_leaders import CUTS

RUNS_WITHIN_S = 300
CUT_S = 15

pytestmark = [pytest.mark.slow, pytest.mark.timeout(RUNS_WITHIN_S)]


@pytest.mark.parametrize("cut", sorted(CUTS))
def test_clients_leave_a_leader_that_is_cut_off(cut: str) -> None:
    reason = isolation.missing()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.cluster.cut_off_leaders", "--cut", cut, "--seconds", str(CUT_S)]
    command += ["--library", "librdkafka", "--library", "kafka-python", "--library", "ottla", "--library", "java"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUNS_WITHIN_S, check=False)
    if "nothing can be run" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"

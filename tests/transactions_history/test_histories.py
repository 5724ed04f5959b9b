"""The short form of `./dev chaos transactions`: one broker that is killed, and brokers with planted faults."""

from __future__ import annotations

import secrets
import shutil
import sys

import pytest

from tests.transactions_history.chaos import LIBRDKAFKA_READER, LIBRDKAFKA_WORKER, STABLE_OFFSETS_READER
from tests.transactions_history.mutated_broker import MUTATIONS
from tests.transactions_history.run import run_on_one_broker

KINDS = (LIBRDKAFKA_WORKER,)
READERS = (LIBRDKAFKA_READER, STABLE_OFFSETS_READER)
# Its run waits for what never comes: `./dev chaos transactions --control` has it.
WAITS = "lose-a-marker"

pytestmark = pytest.mark.slow


def test_kills_of_a_broker_break_no_transaction() -> None:
    seed = secrets.randbelow(1 << 31)
    result = run_on_one_broker(KINDS, READERS, 2, seed=seed)
    assert result.is_clean, f"seed {seed}: {result}"
    assert result.report.figures["transactions_ok"] > 0


@pytest.mark.parametrize("mutation", sorted(MUTATIONS.keys() - {WAITS}))
def test_checker_notices_a_broker_with_a_planted_fault(mutation: str) -> None:
    command = (sys.executable, "-m", "tests.transactions_history.mutated_broker", mutation)
    result = run_on_one_broker(KINDS, READERS, 1, seed=1, command=command)
    assert result.report.found & MUTATIONS[mutation].expected, str(result)
    assert result.kept_directory is not None
    shutil.rmtree(result.kept_directory)

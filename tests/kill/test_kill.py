"""kill -9 during idempotent produce with acks=all: nothing acknowledged is lost, repeated or out of order."""

from __future__ import annotations

import pytest

from tests.kill.mutated_broker import MUTATIONS
from tests.kill.workload import PARTITIONS_COUNT, run_kills

KILLS = 25
KILLS_WITH_UNANSWERED_REQUESTS_SHARE_MIN = 0.6
KILLS_OF_A_CONTROL = 12


@pytest.mark.slow
def test_kills_lose_duplicate_and_disorder_no_acknowledged_records() -> None:
    outcome = run_kills(KILLS, seed=2011)
    print(outcome)  # noqa: T201  the counts are the result
    assert outcome.is_clean, str(outcome)
    assert outcome.kills == KILLS
    assert outcome.kills_with_unanswered_requests >= KILLS * KILLS_WITH_UNANSWERED_REQUESTS_SHARE_MIN
    assert outcome.acknowledged > 0
    assert outcome.segments > PARTITIONS_COUNT, "no segment rolled"


@pytest.mark.slow
@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
def test_kill_test_notices_a_planted_fault(mutation: str) -> None:
    outcome = run_kills(KILLS_OF_A_CONTROL, seed=2011, mutation=mutation)
    assert not outcome.is_clean, f"{mutation} was not noticed: {outcome}"

"""Producers and group members through kills of the broker and of members: every guarantee holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.history.clients import CONSUMER, COOPERATIVE, RANGE, MemberKind
from tests.history.mutated_broker import MUTATIONS
from tests.history.workload import mixed_faults, run_faults

FAULTS = 12
FAULTS_OF_A_SHORT_RUN = 6
SEED = 2011
# A planted fault shows at random: for example, a paused member must resume with a pending commit before it
# learns that another member has its partitions.  So a run may miss it, and the next one has another seed.
PLANTED_RUNS_MAX = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "faults_count"),
    [
        pytest.param(RANGE, FAULTS, id="range-12"),
        pytest.param(COOPERATIVE, FAULTS, id="cooperative-sticky-12"),
        pytest.param(CONSUMER, FAULTS, id="consumer-protocol-12"),
        pytest.param(CONSUMER, FAULTS_OF_A_SHORT_RUN, id="consumer-protocol-6"),
    ],
)
def test_kills_of_broker_and_members_break_no_guarantee(kinds: Sequence[MemberKind], faults_count: int) -> None:
    result = run_faults(kinds, mixed_faults(faults_count, SEED), seed=SEED)
    print(result)  # noqa: T201  the counts are the result
    assert result.is_clean, str(result)
    assert result.faults.broker_kills == faults_count // 2
    assert result.faults.member_kills == result.faults.member_pauses == faults_count // 6
    figures = result.report.figures
    assert figures["sends_ok"] > 1_000
    assert figures["commits_ok"] > 10
    assert figures["partitions_given"] > 6, "the group never rebalanced"


@pytest.mark.slow
@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
def test_checker_notices_a_broker_with_a_planted_fault(mutation: str) -> None:
    planted = MUTATIONS[mutation]
    missed = []
    for seed in range(SEED, SEED + PLANTED_RUNS_MAX):
        result = run_faults(planted.kinds, planted.faults, seed=seed, pause_s=planted.pause_s, mutation=mutation)
        if result.report.found & planted.expected:
            return
        missed.append(str(result))
    pytest.fail("\n".join([f"{mutation} was not noticed in {PLANTED_RUNS_MAX} runs:", *missed]))

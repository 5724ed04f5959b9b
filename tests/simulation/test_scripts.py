"""Orders of events that seeds seldom produce: what the rules prevent, and what happens without them."""

from __future__ import annotations

import pytest

from ottla.model.error_code import ErrorCode
from tests.seeds.planted import planted
from tests.simulation.mutants import MUTANTS
from tests.unit.replication.replicas import Answer, OnePartition, log_of, state_of


def late_fetch_of_a_former_leadership() -> tuple[int, OnePartition, OnePartition]:
    """Broker 1 leads twice, and a fetch of its first leadership arrives in the second: (answer, leader, follower)."""
    leader = OnePartition(1, log_of(0, 0), high_watermark=2)
    follower = OnePartition(2, log_of(0, 0), high_watermark=2)
    third = OnePartition(3, log_of(0, 0), high_watermark=2)
    for partition in (leader, follower, third):
        partition.see(state_of(1, 1), 1)
    leader.append("x", "y")
    # Broker 2 has fetched both, flushed them, and reports it: this message is delayed.
    for _ in range(2):
        follower.log.append_record(1, "x")
    follower.flush()
    late = follower.replica.next_fetch()
    assert late is not None
    # Broker 3 is elected without them.  Broker 2 follows it and truncates its log; broker 1 does not.
    for partition in (leader, follower, third):
        partition.see(state_of(3, 2), 2)
    asked = follower.replica.next_fetch()
    assert asked is not None
    _, diverging, _ = third.fetched_by(2, asked.fetch_offset, asked.last_fetched_epoch)
    follower.cut(follower.replica.on_response(asked.request_id, Answer(0, 2, 0, diverging)))
    assert follower.log.log_end_offset == 2
    # Broker 3 dies before it commits anything; now the message arrives.
    for partition in (leader, follower):
        partition.see(state_of(1, 3, (1, 2)), 3)
    error_code, _, _ = leader.fetched_by(2, late.fetch_offset, late.last_fetched_epoch, leader_epoch=late.leader_epoch)
    return error_code, leader, follower


def test_late_fetch_of_a_former_leadership_is_ignored() -> None:
    error_code, leader, follower = late_fetch_of_a_former_leadership()
    assert error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert leader.replica.high_watermark <= follower.log.log_end_offset


@pytest.mark.parametrize("bug", ["a fetch counts in any leader epoch"])
def test_late_fetch_commits_unreplicated_records_when_epochs_are_not_compared(bug: str) -> None:
    with planted(MUTANTS[bug].patches):
        _, leader, follower = late_fetch_of_a_former_leadership()
    assert leader.replica.high_watermark > follower.log.log_end_offset

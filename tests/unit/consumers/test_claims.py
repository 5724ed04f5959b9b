"""A partition is claimed, committed, released and lost: what is written over which version, and what follows."""

from __future__ import annotations

import pytest

from ottla.consumers.effects import (
    Blocked,
    Committed,
    Lost,
    ReadGroup,
    ReadPartitions,
    Released,
    Revoke,
    Settled,
    Start,
    Write,
    WriteKind,
)
from ottla.consumers.partition_nodes import ClaimId, OffsetNode, OwnerNode, PartitionNodes
from ottla.consumers.share import StreamId
from ottla.model.identifiers import NO_OFFSET
from ottla.model.partition_state import ChangeResult
from tests.unit.consumers.one_consumer import (
    FREE,
    OTHER,
    OWN,
    PACE,
    T0,
    T1,
    OneConsumer,
    free_at,
    group,
    held_by_other,
    own,
)


def claiming(nodes: PartitionNodes = FREE) -> tuple[OneConsumer, Write]:
    """A consumer whose claim of the only partition is on its way."""
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(1, a=1))
    one.find(nodes)
    return one, one.one(Write)


def test_claim_is_written_over_the_version_that_was_read_and_starts_at_its_offset() -> None:
    one, claim = claiming(free_at(30, version=4))
    assert (claim.kind, claim.expected_version, claim.offset, claim.stream) == (WriteKind.CLAIM, 4, 30, OWN)
    assert not one.has(Start)
    one.written(claim)
    start = one.one(Start)
    assert (start.partition, start.stream, start.offset, start.claim) == (T0, OWN, 30, claim.claim)
    assert start.until_ms == 1000


def test_refused_claim_is_decided_by_the_nodes() -> None:
    one, claim = claiming()
    one.written(claim, ChangeResult.STALE)
    one.find(free_at(12, version=9))
    again = one.one(Write)
    assert (again.expected_version, again.offset) == (9, 12)
    assert again.claim != claim.claim


def test_unknown_claim_that_was_applied_is_found_by_its_id() -> None:
    one, claim = claiming(free_at(30, version=4))
    one.written(claim, ChangeResult.UNKNOWN)
    assert not one.has(Start)
    one.find(own(claim, 30, version=5))
    start = one.one(Start)
    assert (start.offset, start.claim) == (30, claim.claim)
    assert one.commit(start, 31).expected_version == 5


def test_unknown_claim_that_was_not_applied_is_written_again() -> None:
    one, claim = claiming(free_at(30, version=4))
    one.written(claim, ChangeResult.UNKNOWN)
    one.find(free_at(30, version=4))
    assert one.one(Write).kind is WriteKind.CLAIM


def test_own_owner_node_of_no_valid_claim_is_deleted_before_the_partition_is_claimed() -> None:
    one, claim = claiming()
    one.written(claim, ChangeResult.UNKNOWN)
    # An operator has set the offset after the claim.
    one.find(PartitionNodes(OwnerNode(OWN, is_own=True), OffsetNode(3, None, 8)))
    release = one.one(Write)
    assert (release.kind, release.expected_version, release.offset) == (WriteKind.RELEASE, 8, 3)
    one.written(release)
    one.find(free_at(3, version=9))
    one.written(one.one(Write))
    assert one.one(Start).offset == 3


def test_claim_waits_while_another_holds_the_partition() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(1, a=1))
    one.find(held_by_other())
    assert not one.effects
    assert one.consumer.blocked_by == {T0: OTHER}
    one.wait()
    one.find(free_at(7, version=2))
    one.written(one.one(Write))
    assert one.one(Start).offset == 7
    assert one.consumer.blocked_by == {}


def test_partition_that_is_never_let_go_is_named_once_and_tried_on() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(1, a=1))
    reasons: list[str] = []
    waits: list[int] = []
    for _ in range(10):
        one.find(held_by_other())
        reasons += [effect.reason for effect in one.effects if isinstance(effect, Blocked)]
        began_ms = one.now_ms
        one.wait()
        waits.append(one.now_ms - began_ms)
    assert reasons == ["t-0 is held by b-0"]
    # They grow, and are bounded.
    assert waits[0] <= 51
    assert all(400 <= wait_ms <= 801 for wait_ms in waits[5:])
    assert one.has(ReadPartitions)


def test_commit_is_written_over_the_version_of_the_last_write() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    first = one.commit(start, 35)
    assert (first.kind, first.expected_version, first.offset, first.claim) == (WriteKind.COMMIT, 5, 35, start.claim)
    one.written(first)
    assert one.one(Committed).offset == 35
    assert one.commit(start, 36).expected_version == 6


def test_commits_wait_for_the_one_under_way_and_the_last_of_them_is_written() -> None:
    one = OneConsumer()
    start = one.own_alone()
    first = one.commit(start, 1)
    for offset in (2, 3):
        assert one.given(one.consumer.commit([(T0, start.claim, offset)])) == []
    one.written(first)
    assert one.one(Write).offset == 3


def test_commit_of_the_committed_offset_writes_nothing() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    assert one.given(one.consumer.commit([(T0, start.claim, 30)])) == [Committed(T0, start.claim, 30)]


def test_commit_of_a_claim_that_is_over_counts_for_nothing() -> None:
    one = OneConsumer()
    one.own_alone(offset=30)
    assert one.given(one.consumer.commit([(T0, ClaimId(7, 10_000), 35)])) == []


@pytest.mark.parametrize("outcome", [ChangeResult.STALE, ChangeResult.UNKNOWN])
def test_commit_of_a_fenced_owner_loses_the_partition(outcome: ChangeResult) -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.written(one.commit(start, 35), outcome)
    one.find(held_by_other(offset=40, version=9))
    assert one.one(Lost).claim == start.claim
    assert not one.has(Write)
    assert one.given(one.consumer.commit([(T0, start.claim, 36)])) == []


def test_unknown_commit_that_was_applied_is_not_written_again() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    commit = one.commit(start, 35)
    one.written(commit, ChangeResult.UNKNOWN)
    one.find(own(commit, 35, version=6))
    assert one.one(Committed).offset == 35
    assert not one.has(Write)
    assert one.commit(start, 36).expected_version == 6


def test_unknown_commit_that_was_not_applied_is_written_again_over_the_read_version() -> None:
    one = OneConsumer()
    commit = one.commit(one.own_alone(offset=30), 35)
    one.written(commit, ChangeResult.UNKNOWN)
    one.find(own(commit, 30, version=5))
    again = one.one(Write)
    assert (again.kind, again.expected_version, again.offset) == (WriteKind.COMMIT, 5, 35)


def test_silent_tree_is_reported_to_a_consumer_that_has_its_share_and_so_is_its_return() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    commit = one.commit(start, 35)
    one.written(commit, ChangeResult.UNKNOWN)
    reasons: list[str] = []
    for _ in range(PACE.attempts_max):
        one.given(one.consumer.on_read_failed(one.one(ReadPartitions).request_id, one.now_ms))
        reasons += [effect.reason for effect in one.effects if isinstance(effect, Blocked)]
        look = [effect for effect in one.effects if isinstance(effect, ReadGroup)]
        one.wait()
    assert reasons == ["the tree does not answer"]
    one.given(one.consumer.on_view(look[0].request_id, group(1, a=1), one.now_ms))
    assert one.has(Settled)


def test_offset_that_an_operator_set_is_started_from() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.written(one.commit(start, 35), ChangeResult.STALE)
    one.find(PartitionNodes(OwnerNode(OWN, is_own=True), OffsetNode(10, None, 6)))
    assert one.one(Lost).claim == start.claim
    release = one.one(Write)
    assert (release.kind, release.offset) == (WriteKind.RELEASE, 10)
    one.written(release)
    one.find(free_at(10, version=7))
    one.written(one.one(Write))
    assert one.one(Start).offset == 10


def test_offset_that_an_operator_set_is_found_though_there_is_nothing_to_commit() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.given(one.consumer.on_offsets_set(one.now_ms))
    one.find(PartitionNodes(OwnerNode(OWN, is_own=True), OffsetNode(10, None, 6)))
    assert one.one(Lost).claim == start.claim


def test_read_after_a_reset_waits_for_the_write_under_way_and_continues_where_nothing_was_set() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    commit = one.commit(start, 35)
    one.given(one.consumer.on_offsets_set(one.now_ms))
    assert not one.has(ReadPartitions)
    one.written(commit)
    assert one.one(Committed).offset == 35
    # What is said meanwhile waits, and is answered.
    assert not one.consumer.commit([(start.partition, start.claim, 35)])
    one.find(own(commit, 35, version=6))
    assert one.one(Committed).offset == 35
    assert one.commit(start, 36).expected_version == 6


def test_commit_back_to_the_start_of_an_unknown_one_is_answered() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    commit = one.commit(start, 35)
    assert not one.consumer.commit([(start.partition, start.claim, 30)])
    one.written(commit, ChangeResult.UNKNOWN)
    one.find(own(commit, 30, version=5))
    assert one.one(Committed).offset == 30
    assert not one.has(Write)


def test_partition_whose_nodes_cannot_be_understood_is_named_and_looked_at_again() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(2, a=1))
    one.find(PartitionNodes(None, None, "a node is damaged"), FREE)
    claim = one.one(Write)
    assert claim.partition == T1
    one.written(claim)
    reasons: list[str] = []
    for _ in range(3):
        reasons += [effect.reason for effect in one.effects if isinstance(effect, Blocked)]
        one.wait()
        one.find(PartitionNodes(None, None, "a node is damaged"))
    assert [*reasons, *(effect.reason for effect in one.effects if isinstance(effect, Blocked))] == [
        "t-0 cannot be claimed: a node is damaged"
    ]
    one.wait()
    one.find(free_at(7, version=2))
    one.written(one.one(Write))
    assert one.one(Start).offset == 7


def test_own_partition_whose_nodes_cannot_be_understood_any_more_is_lost_and_released_when_they_are_mended() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    one.written(one.commit(start, 35), ChangeResult.STALE)
    one.find(PartitionNodes(OwnerNode(OWN, is_own=True), None, "a node is damaged"))
    assert one.one(Lost).claim == start.claim
    assert not one.has(Write)
    one.wait()
    one.find(PartitionNodes(OwnerNode(OWN, is_own=True), OffsetNode(12, None, 9)))
    release = one.one(Write)
    assert (release.kind, release.expected_version, release.offset) == (WriteKind.RELEASE, 9, 12)


def give_way(one: OneConsumer) -> None:
    """Consumer `Z` comes, which is before `a` in order: the only partition is its share."""
    one.given(one.consumer.on_change(one.now_ms))
    one.wait()
    one.see(group(1, a=1, Z=1))


def test_revoked_partition_is_released_with_its_passed_offset_in_one_write() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    give_way(one)
    assert one.one(Revoke).claim == start.claim
    assert not one.has(Write)
    one.stopped(start, 33)
    release = one.one(Write)
    assert (release.kind, release.expected_version, release.offset, release.claim) == (WriteKind.RELEASE, 5, 33, None)
    one.written(release)
    assert one.one(Released) == (T0, start.claim, 33)
    assert not one.has(Write)


def test_stream_without_a_start_offset_leaves_the_committed_one() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    give_way(one)
    one.stopped(start, NO_OFFSET)
    assert one.one(Write).offset == 30


def test_release_waits_for_the_commit_under_way() -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    commit = one.commit(start, 32)
    give_way(one)
    one.stopped(start, 33)
    assert not one.has(Write)
    one.written(commit)
    release = one.one(Write)
    assert (release.kind, release.expected_version, release.offset) == (WriteKind.RELEASE, 6, 33)


@pytest.mark.parametrize("is_applied", [False, True])
def test_release_of_unknown_outcome_is_read_and_then_written_again_or_done(is_applied: bool) -> None:
    one = OneConsumer()
    start = one.own_alone(offset=30)
    give_way(one)
    one.stopped(start, 33)
    release = one.one(Write)
    one.written(release, ChangeResult.UNKNOWN)
    if is_applied:
        one.find(held_by_other(33, version=7))
        # It cannot be known any more whether it was this release, or the end of it.
        assert one.one(Lost).claim == start.claim
        assert not one.has(Write)
        return
    one.find(PartitionNodes(OwnerNode(OWN, is_own=True), OffsetNode(30, start.claim, 5)))
    again = one.one(Write)
    assert (again.kind, again.expected_version, again.offset) == (WriteKind.RELEASE, 5, 33)


def test_partition_that_moves_to_another_stream_of_the_same_consumer_is_released_and_claimed() -> None:
    one = OneConsumer()
    one.begin()
    one.wait()
    one.see(group(2, a=1))
    one.find(FREE, FREE)
    claims = [effect for effect in one.effects if isinstance(effect, Write)]
    starts: list[Start] = []
    for claim in claims:
        one.written(claim)
        starts.append(one.one(Start))
    one.see(group(2, a=2))
    assert one.one(Revoke).partition == T1
    one.stopped(starts[1], 5)
    one.written(one.one(Write))
    one.find(free_at(5, version=1))
    one.written(one.one(Write))
    again = one.one(Start)
    assert (again.partition, again.stream, again.offset) == (T1, StreamId("a", 1), 5)


def test_claim_that_is_applied_after_it_is_not_wanted_any_more_is_released_unread() -> None:
    one, claim = claiming()
    give_way(one)
    one.written(claim)
    assert not one.has(Start)
    release = one.one(Write)
    assert (release.kind, release.expected_version) == (WriteKind.RELEASE, 0)
    one.written(release)
    assert not one.has(Released)


def test_answers_of_a_session_that_is_over_count_for_nothing() -> None:
    one, claim = claiming()
    one.given(one.consumer.on_session_lost())
    one.begin(session_id=8)
    one.written(claim)
    assert not one.effects

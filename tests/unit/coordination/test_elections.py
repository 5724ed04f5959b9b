"""Who leads after a start, as a rule without a tree."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordination import elections
from ottla.coordination.elections import ElectionRules, after_start
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER, Members, PartitionState, ReplicaIncarnation

SELF, OTHER = NodeId(1), NodeId(2)
NEW_EPOCH = 900


def led_by(
    leader: NodeId, leader_epoch: int, *, replicas: tuple[NodeId, ...] = (SELF,), index: int = 0
) -> PartitionNode:
    in_sync = tuple(ReplicaIncarnation(node, 17) for node in replicas)
    return PartitionNode(index, replicas, PartitionState(leader, LeaderEpoch(leader_epoch), in_sync), 4)


def view_of(*partitions: PartitionNode) -> TopicsView:
    return TopicsView.of(1, {"orders": Topic("orders", UUID(int=2**100), partitions)})


def test_every_partition_gets_a_new_epoch_after_a_crash() -> None:
    view = view_of(led_by(SELF, 0), led_by(SELF, 41, index=1))
    changes = after_start(view, SELF, NEW_EPOCH, {}, was_clean=False)
    assert [change.topic_partition.partition for change in changes] == [0, 1]
    assert [change.state.leader_epoch for change in changes] == [1, 42]
    assert {change.state.leader for change in changes} == {SELF}
    assert {change.state.in_sync for change in changes} == {(ReplicaIncarnation(SELF, NEW_EPOCH),)}
    assert all(change.expected_version == 4 for change in changes)


def test_nothing_changes_after_a_clean_stop() -> None:
    assert after_start(view_of(led_by(SELF, 0), led_by(SELF, 41, index=1)), SELF, NEW_EPOCH, {}, was_clean=True) == []


def test_partition_without_leader_is_led_again_even_after_a_clean_stop() -> None:
    (change,) = after_start(view_of(led_by(NO_LEADER, 3)), SELF, NEW_EPOCH, {}, was_clean=True)
    assert change.state == PartitionState(SELF, LeaderEpoch(4), (ReplicaIncarnation(SELF, NEW_EPOCH),))


def test_partitions_that_others_hold_too_are_left_alone() -> None:
    view = view_of(
        led_by(SELF, 1, replicas=(SELF, OTHER)), led_by(OTHER, 1, replicas=(OTHER,), index=1), led_by(SELF, 1, index=2)
    )
    changes = after_start(view, SELF, NEW_EPOCH, {}, was_clean=False)
    assert [change.topic_partition.partition for change in changes] == [2]


def test_eligible_set_is_emptied_with_the_new_epoch() -> None:
    partition = led_by(SELF, 1)
    stale = partition.state._replace(in_sync=(), eligible=(ReplicaIncarnation(SELF, 17),))
    (change,) = after_start(view_of(partition._replace(state=stale)), SELF, NEW_EPOCH, {}, was_clean=False)
    assert change.state.eligible == ()
    assert change.state.in_sync == (ReplicaIncarnation(SELF, NEW_EPOCH),)


@pytest.mark.parametrize("was_clean", [True, False])
def test_next_epoch_is_above_the_logs_when_the_tree_is_older(was_clean: bool) -> None:
    view = view_of(led_by(SELF, 3), led_by(SELF, 3, index=1))
    log_epochs = {TopicPartition("orders", 0): 7}
    changes = after_start(view, SELF, NEW_EPOCH, log_epochs, was_clean=was_clean)
    assert [change.state.leader_epoch for change in changes] == ([8] if was_clean else [8, 4])


A, B, C = NodeId(1), NodeId(2), NodeId(3)
ALL = (A, B, C)


def members(text: str) -> Members:
    """`A1 B2`: A in its life 1, B in its life 2."""
    return tuple(ReplicaIncarnation(NodeId(" ABC".index(word[0])), int(word[1:])) for word in text.split())


def state_of(leader: str, epoch: int, in_sync: str, eligible: str = "") -> PartitionState:
    led = NO_LEADER if leader == "-" else NodeId(" ABC".index(leader))
    return PartitionState(led, LeaderEpoch(epoch), members(in_sync), members(eligible))


def live_of(text: str) -> dict[NodeId, int]:
    return dict(members(text))


@pytest.mark.parametrize(
    ("state", "live", "is_due"),
    [
        (state_of("A", 5, "A1 B1"), "A1 B1", False),
        (state_of("A", 5, "A1 B1"), "A1", False),
        (state_of("A", 5, "A1 B1"), "B1", True),
        (state_of("A", 5, "A1 B1"), "A2 B1", True),  # a new life leads no old epoch
        (state_of("A", 5, "B1"), "A1 B1", True),
        (state_of("-", 5, "B1"), "B1", True),
    ],
)
def test_election_is_due_when_the_leader_is_not_in_sync_in_its_present_life(
    state: PartitionState, live: str, is_due: bool
) -> None:
    assert elections.is_due(state, live_of(live)) is is_due


@pytest.mark.parametrize(
    ("state", "live", "min_in_sync", "after"),
    [
        # the first in-sync replica in assignment order, in any order of the set
        (state_of("A", 5, "A1 B1 C1"), "B1 C1", 1, state_of("B", 6, "B1 C1")),
        (state_of("A", 5, "A1 C1 B1"), "C1 B1", 1, state_of("B", 6, "B1 C1")),
        (state_of("C", 5, "A1 B1 C1"), "A1 B1", 1, state_of("A", 6, "A1 B1")),
        # who drops out below the minimum stays eligible, and not with enough members
        (state_of("A", 5, "A1 B1 C1"), "B1 C1", 2, state_of("B", 6, "B1 C1")),
        (state_of("A", 5, "A1 B1 C1"), "C1", 2, state_of("C", 6, "C1", "A1 B1")),
        (state_of("A", 5, "A1", "B1"), "A2 B1", 2, state_of("B", 6, "B1", "A1")),
        (state_of("A", 5, "A1 B1", "C1"), "B1", 2, state_of("B", 6, "B1", "A1 C1")),
        (state_of("A", 5, "A1 B1", "C1"), "B1", 1, state_of("B", 6, "B1")),
        # a member of the in-sync set before an eligible one that is assigned earlier
        (state_of("-", 5, "C1", "A1"), "A1 C1", 2, state_of("C", 6, "C1", "A1")),
        # eligible replicas lead alone, and only in the life in which they became so
        (state_of("-", 5, "", "B1 C1"), "B1 C1", 2, state_of("B", 6, "B1", "C1")),
        (state_of("A", 5, "A1", "B1 C1"), "B2 C1", 3, state_of("C", 6, "C1", "A1 B1")),
        (state_of("A", 5, "A1", "B1"), "B2", 2, None),
        # KIP-903: a restarted member counts only once it has checked its own log
        (state_of("A", 5, "A1 B1"), "A2 B2", 1, None),
        (state_of("A", 5, "A1"), "B1 C1", 1, None),
        (state_of("-", 5, ""), "A1 B1 C1", 1, None),
        (state_of("A", 5, "A1"), "", 1, None),
        # the leader itself, when it lost only its place as the leader
        (state_of("-", 5, "A1 B1"), "A1 B1", 2, state_of("A", 6, "A1 B1")),
    ],
)
def test_next_leader_holds_every_committed_record(
    state: PartitionState, live: str, min_in_sync: int, after: PartitionState | None
) -> None:
    assert elections.elected(ALL, state, live_of(live), min_in_sync) == after


def test_a_broker_that_stops_hands_over_and_stays_in_sync_until_it_is_gone() -> None:
    live = live_of("A1 B1 C1")
    assert elections.elected(ALL, state_of("A", 5, "A1 C1"), live, 2, excluded={A}) == state_of("C", 6, "A1 C1")
    assert elections.elected(ALL, state_of("A", 5, "A1", "B1"), live, 2, excluded={A}) is None


@pytest.mark.parametrize(
    ("state", "live", "after"),
    [
        (state_of("B", 5, "A1 B1 C1"), "A1 B1 C1", state_of("A", 6, "A1 B1 C1")),
        (state_of("B", 5, "A1 B1 C1"), "A1 B1", state_of("A", 6, "A1 B1")),
        (state_of("A", 5, "A1 B1"), "A1 B1", None),
        (state_of("B", 5, "B1 C1"), "A1 B1 C1", None),
        (state_of("B", 5, "A1 B1"), "A2 B1", None),
        (state_of("-", 5, "", "A1"), "A1", None),
    ],
)
def test_preferred_leader_takes_over_only_in_sync(
    state: PartitionState, live: str, after: PartitionState | None
) -> None:
    assert elections.preferred(ALL, state, live_of(live), 1) == after


@pytest.mark.parametrize(
    ("state", "is_complete", "after"),
    [
        # a follower continues in its place, or leaves
        (state_of("A", 5, "A1 B1 C1"), True, state_of("A", 5, "A1 B9 C1")),
        (state_of("A", 5, "A1 B1 C1"), False, state_of("A", 5, "A1 C1")),
        (state_of("A", 5, "A1", "B1 C1"), True, state_of("A", 5, "A1", "B9 C1")),
        (state_of("A", 5, "A1", "B1 C1"), False, state_of("A", 5, "A1", "C1")),
        # a leader leads no more: its next life needs a new epoch
        (state_of("B", 5, "A1 B1"), True, state_of("-", 5, "A1 B9")),
        (state_of("B", 5, "A1 B1"), False, state_of("-", 5, "A1")),
        (state_of("B", 5, "B1", "C1"), False, state_of("-", 5, "", "C1")),
        (state_of("B", 5, "B1"), False, state_of("-", 5, "")),
        # nothing of an earlier life
        (state_of("A", 5, "A1 C1"), True, None),
        (state_of("A", 5, "A1 C1"), False, None),
        (state_of("B", 5, "B9 C1"), True, None),
        # an unusable log leaves in its own life, too
        (state_of("B", 5, "B9 C1"), False, state_of("-", 5, "C1")),
    ],
)
def test_restarted_broker_reaffirms_or_leaves(
    state: PartitionState, is_complete: bool, after: PartitionState | None
) -> None:
    assert elections.reaffirmed(state, ReplicaIncarnation(B, 9), is_complete=is_complete) == after


def test_emptied_sets_are_led_again_only_by_an_unclean_election() -> None:
    state = state_of("-", 5, "")
    live = live_of("B4 C4")
    assert elections.elected(ALL, state, live, 1) is None
    assert elections.unclean_candidates(ALL, state, live) == list(members("B4 C4"))
    assert elections.elected_unclean(state, ReplicaIncarnation(B, 4)) == state_of("B", 6, "B4")


def test_unclean_election_waits_for_a_member_that_has_just_come_back() -> None:
    state = state_of("A", 5, "A1", "B1")
    assert elections.unclean_candidates(ALL, state, live_of("C4")) == list(members("C4"))
    assert elections.unclean_candidates(ALL, state, live_of("A2 C4")) == []
    assert elections.unclean_candidates(ALL, state, live_of("B2 C4")) == []
    assert elections.elected_unclean(state, ReplicaIncarnation(C, 4)) == state_of("C", 6, "C4")


@pytest.mark.parametrize(
    ("state", "live", "is_unclean", "after"),
    [
        (state_of("B", 5, "A1 B1"), "A1 B1", False, state_of("A", 6, "A1 B1")),
        (state_of("A", 5, "A1 B1"), "A1 B1", False, ErrorCode.ELECTION_NOT_NEEDED),
        (state_of("B", 5, "B1"), "A1 B1", False, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state_of("B", 5, "B1"), "A1 B1", True, ErrorCode.ELECTION_NOT_NEEDED),
        (state_of("B", 5, "B1"), "A1 C1", True, state_of("A", 6, "A1")),
        (state_of("B", 5, "B1 C1"), "A1 C1", True, state_of("C", 6, "C1")),
        (state_of("B", 5, "B1"), "", True, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_operators_election_is_held_or_refused_with_kafkas_code(
    state: PartitionState, live: str, is_unclean: bool, after: PartitionState | ErrorCode
) -> None:
    assert elections.requested(ALL, state, live_of(live), 1, is_unclean=is_unclean) == after


@pytest.mark.parametrize(
    ("usability", "after"),
    [
        ({A: False, C: True}, state_of("C", 6, "C1")),
        ({A: False}, state_of("C", 6, "C1")),
        ({C: True}, state_of("C", 6, "C1")),
        ({A: True, C: True}, state_of("A", 6, "A1")),
        ({A: False, C: False}, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_unclean_election_prefers_a_log_that_is_known_to_be_usable_and_takes_none_that_is_not(
    usability: dict[NodeId, bool], after: PartitionState | ErrorCode
) -> None:
    state, live = state_of("B", 5, "B1"), live_of("A1 C1")
    assert elections.requested(ALL, state, live, 1, is_unclean=True, usability=usability) == after


def due_for(
    own: str, state: PartitionState, live: str, *, allows_unclean: bool = False, replicas: tuple[NodeId, ...] = ALL
) -> list[tuple[PartitionState, int]]:
    rules = ElectionRules(lambda _topic, _partition: 1, lambda _topic: allows_unclean)
    view = view_of(PartitionNode(0, replicas, state, 4))
    ((topic, partition),) = view.partitions()
    (incarnation,) = members(own)
    return [
        (election.change.state, election.rank)
        for election in elections.due(topic, [partition], incarnation, live_of(live), rules)
    ]


def test_next_leader_writes_at_once_and_each_other_replica_later_than_the_one_before() -> None:
    state, after = state_of("A", 5, "A1 C1"), state_of("C", 6, "C1")
    assert due_for("C1", state, "B1 C1") == [(after, 0)]
    assert due_for("B1", state, "B1 C1") == [(after, 1)]
    assert due_for("A2", state, "A2 B1 C1") == [(after, 1)]
    assert due_for("B1", state, "A2 B1 C1") == [(after, 2)]


def test_nothing_is_due_for_a_broker_without_a_replica_or_registration_or_with_a_leader() -> None:
    state = state_of("A", 5, "A1 C1")
    assert due_for("B1", state, "B1 C1", replicas=(A, C)) == []
    assert due_for("C1", state, "C2") == []
    assert due_for("C1", state, "A1 C1") == []
    assert due_for("B1", state, "B1") == []


def test_unclean_election_is_of_the_replica_itself_and_only_where_it_is_allowed() -> None:
    state = state_of("A", 5, "A1")
    assert due_for("C4", state, "B4 C4") == []
    assert due_for("B4", state, "B4 C4", allows_unclean=True) == [(state_of("B", 6, "B4"), 0)]
    assert due_for("C4", state, "B4 C4", allows_unclean=True) == [(state_of("C", 6, "C4"), 1)]
    assert due_for("C4", state, "A2 B4 C4", allows_unclean=True) == []
    assert due_for("A2", state, "A2 B4 C4", allows_unclean=True) == []


def test_replica_that_lost_its_log_never_leads_by_its_former_place() -> None:
    """KIP-903: A and B in sync, B restarts with an empty disk while A dies."""
    state = state_of("A", 5, "A1 B1")
    assert elections.elected(ALL, state, live_of("B2"), 1) is None
    left = elections.reaffirmed(state, ReplicaIncarnation(B, 2), is_complete=False)
    assert left == state_of("A", 5, "A1")
    assert elections.elected(ALL, left, live_of("B2"), 1) is None
    back = elections.reaffirmed(left, ReplicaIncarnation(A, 3), is_complete=True)
    assert back == state_of("-", 5, "A3")
    assert elections.elected(ALL, back, live_of("A3 B2"), 1) == state_of("A", 6, "A3")


def test_last_replica_standing_that_lost_records_gives_way_to_an_eligible_one() -> None:
    """KIP-966: the in-sync set shrinks to C, whose machine then loses power and its page cache."""
    state = state_of("C", 5, "A1 B1 C1").with_in_sync(members("C1"), ALL, 2)
    assert state == state_of("C", 5, "C1", "A1 B1")
    left = elections.reaffirmed(state, ReplicaIncarnation(C, 2), is_complete=False)
    assert left == state_of("-", 5, "", "A1 B1")
    assert elections.elected(ALL, left, live_of("C2"), 2) is None
    back = elections.reaffirmed(left, ReplicaIncarnation(B, 2), is_complete=True)
    assert back == state_of("-", 5, "", "A1 B2")
    assert elections.elected(ALL, back, live_of("B2 C2"), 2) == state_of("B", 6, "B2", "A1")


def test_two_fast_elections_each_have_their_own_epoch() -> None:
    """KIP-279: A leads, dies, B leads without a record, dies, A leads again."""
    second = elections.elected(ALL, state_of("A", 5, "A1 B1"), live_of("B1"), 2)
    assert second == state_of("B", 6, "B1", "A1")
    back = elections.reaffirmed(second, ReplicaIncarnation(A, 2), is_complete=True)
    assert back == state_of("B", 6, "B1", "A2")
    assert elections.elected(ALL, back, live_of("A2"), 2) == state_of("A", 7, "A2", "B1")


def test_grown_and_shrunk_sets_keep_assignment_order_and_the_eligible_rule() -> None:
    state = state_of("B", 5, "B1")
    grown = state.with_in_sync(members("C1 B1"), ALL, 2)
    assert grown == state_of("B", 5, "B1 C1")
    assert grown.with_in_sync(members("C1 A1 B1"), ALL, 2) == state_of("B", 5, "A1 B1 C1")
    assert grown.with_in_sync(members("B1"), ALL, 2) == state_of("B", 5, "B1", "C1")
    assert grown.with_in_sync(members("B1"), ALL, 1) == state_of("B", 5, "B1")
    below = state_of("B", 5, "B1", "A1 C1")
    assert below.with_in_sync(members("B1 C3"), ALL, 3) == state_of("B", 5, "B1 C3", "A1")
    assert below.with_in_sync(members("B1 C3"), ALL, 2) == state_of("B", 5, "B1 C3")

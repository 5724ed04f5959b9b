"""A shard whose broker may have been replaced for a while: it refuses, and continues with its groups."""

from __future__ import annotations

import pytest

from ottla.groups.commands import ConsumerGroupHeartbeat, SyncGroup
from ottla.groups.replies import CommitReply, ConsumerGroupHeartbeatReply, FetchReply, JoinReply, SyncReply
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, HOST, TOPIC, Coordinator

REFUSED = ErrorCode.NOT_COORDINATOR
SESSION_MS = 10_000
REBALANCE_MS = 60_000


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def lapse(coordinator: Coordinator, duration_ms: int) -> None:
    coordinator.shard.suspend(REFUSED)
    coordinator.monotonic_ms += duration_ms
    coordinator.wall_ms += duration_ms
    coordinator.shard.resume(coordinator.now)
    coordinator.shard.assert_sound()


def test_suspended_shard_refuses_members_and_commits(coordinator: Coordinator) -> None:
    (member,) = coordinator.stable_group(1)
    coordinator.shard.suspend(REFUSED)
    batches_count = len(coordinator.log.batches)
    assert coordinator.heartbeat(member) is REFUSED
    assert coordinator.commit_errors({0: 5}, member) == {REFUSED}
    assert coordinator.ask_join().of(JoinReply).error is REFUSED
    assert len(coordinator.log.batches) == batches_count


def test_member_keeps_its_generation_through_a_lapse_longer_than_its_session(coordinator: Coordinator) -> None:
    first, second = coordinator.stable_group(2)
    lapse(coordinator, 3 * SESSION_MS)
    coordinator.pass_ms(SESSION_MS - 1)
    assert [coordinator.heartbeat(member) for member in (first, second)] == [ErrorCode.NONE] * 2
    assert coordinator.commit_errors({0: 5}, first) == {ErrorCode.NONE}


def test_member_that_is_silent_after_a_lapse_is_removed_after_one_session(coordinator: Coordinator) -> None:
    (member,) = coordinator.stable_group(1)
    lapse(coordinator, 1_000)
    coordinator.pass_ms(SESSION_MS)
    assert coordinator.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_that_is_refused_in_flight_counts_when_its_record_is_stable(coordinator: Coordinator) -> None:
    coordinator.log.holds_back = True
    committed = coordinator.commit({0: 5})
    lapse(coordinator, 400)
    assert committed.of(CommitReply).errors == (REFUSED,)
    read = coordinator.ask_committed()
    assert read.waits, "a crash would take the offset back"
    coordinator.flush()
    assert read.of(FetchReply).error is ErrorCode.NONE
    assert coordinator.committed() == {(TOPIC, 0): 5}


def test_members_that_are_refused_in_a_rebalance_have_its_full_time_to_return(coordinator: Coordinator) -> None:
    first, second = coordinator.stable_group(2)
    joins = [coordinator.ask_join(first.member_id), coordinator.ask_join(client_id="new")]
    lapse(coordinator, REBALANCE_MS)
    assert [one.of(JoinReply).error for one in joins] == [REFUSED] * 2
    again = coordinator.ask_join(first.member_id)
    coordinator.pass_ms(SESSION_MS - 1)
    assert again.waits, "the second member may still join"
    other = coordinator.ask_join(second.member_id)
    assert again.of(JoinReply).generation == other.of(JoinReply).generation == first.generation + 1
    assert len(again.of(JoinReply).members) == 2, "no member is left of the join that was refused"


def test_static_member_whose_first_join_is_refused_returns_in_its_own_place(coordinator: Coordinator) -> None:
    refused = coordinator.ask_join(instance_id="i")
    lapse(coordinator, 400)
    assert refused.of(JoinReply).error is REFUSED
    (joined,) = coordinator.join_together([coordinator.ask_join(instance_id="i")])
    assert joined.error is ErrorCode.NONE
    assert len(joined.members) == 1


def test_group_of_members_that_never_joined_is_forgotten(coordinator: Coordinator) -> None:
    coordinator.ask_join()
    lapse(coordinator, 400)
    coordinator.pass_ms(SESSION_MS)
    assert len(coordinator.shard) == 0
    assert coordinator.member_bytes.held_bytes == 0


def test_sync_that_is_refused_is_sent_again_in_the_same_generation(coordinator: Coordinator) -> None:
    leader, other = coordinator.join_together([coordinator.ask_join(client_id=f"client{n}") for n in range(2)])
    waiting = coordinator.ask_sync(other)
    lapse(coordinator, REBALANCE_MS)
    assert waiting.of(SyncReply).error is REFUSED
    assert [reply.error for reply in coordinator.sync_all([leader, other])] == [ErrorCode.NONE] * 2


def test_member_that_does_not_sync_again_after_a_lapse_is_removed(coordinator: Coordinator) -> None:
    leader, other = coordinator.join_together([coordinator.ask_join(client_id=f"client{n}") for n in range(2)])
    coordinator.ask_sync(other)
    lapse(coordinator, 400)
    coordinator.ask_sync(leader, {leader.member_id: b"all"})
    for _ in range(REBALANCE_MS // 5_000):
        coordinator.heartbeat(leader)
        coordinator.heartbeat(other)
        coordinator.pass_ms(5_000)
    assert coordinator.heartbeat(other) is ErrorCode.UNKNOWN_MEMBER_ID


def test_client_that_asks_again_while_it_is_refused_is_refused_again(coordinator: Coordinator) -> None:
    leader, other = coordinator.join_together([coordinator.ask_join(client_id=f"client{n}") for n in range(2)])
    replies: list[SyncReply] = []

    def sync(reply: SyncReply | None = None) -> None:
        if reply is not None:
            replies.append(reply)
        if len(replies) < 3:
            again = SyncGroup(GROUP, other.generation, other.member_id, None, None, None, ())
            coordinator.shard.submit(again, sync, coordinator.now)

    sync()
    lapse(coordinator, 400)
    assert [reply.error for reply in replies] == [REFUSED] * 3
    assert coordinator.heartbeat(leader) is ErrorCode.NONE


def test_member_of_a_consumer_group_keeps_its_epoch_through_a_long_lapse(coordinator: Coordinator) -> None:
    joined = beat(coordinator, 0)
    lapse(coordinator, 10 * coordinator.settings.consumer_times.session_timeout_ms)
    coordinator.pass_ms(coordinator.settings.consumer_times.session_timeout_ms - 1)
    assert beat(coordinator, joined.member_epoch).error is ErrorCode.NONE
    lapse(coordinator, 400)
    coordinator.pass_ms(coordinator.settings.consumer_times.session_timeout_ms)
    assert beat(coordinator, joined.member_epoch).error is not ErrorCode.NONE


def beat(coordinator: Coordinator, epoch: int) -> ConsumerGroupHeartbeatReply:
    command = ConsumerGroupHeartbeat(
        "consumers", "m", epoch, "client", HOST, rebalance_timeout_ms=60_000, topic_names=[TOPIC], owned=[]
    )
    return coordinator.ask(command).of(ConsumerGroupHeartbeatReply)

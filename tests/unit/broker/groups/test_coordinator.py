"""Groups in the broker's shell: where commands go, when replies leave, what happens at start and stop."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.net.limits import GROUP_ID_LENGTH_MAX
from ottla.broker.shards.shard_table import TIMER_TURN_S
from ottla.coordination.tree import LEASE_FOREVER
from ottla.groups.commands import Heartbeat, ListGroups, SyncGroup
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import GroupShard
from ottla.model.error_code import ErrorCode
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC
from ottla.runtime.steps import run_steps
from ottla.storage.log_config import LogConfig
from tests.unit.broker.groups.small_coordinator import PARTITIONS, SmallCoordinator, commit, fetch, join
from tests.unit.broker.roles import lead, resign

if TYPE_CHECKING:
    from ottla.groups.replies import ListReply
    from ottla.runtime.clock import Moment


@pytest.fixture
def small() -> SmallCoordinator:
    """With the topic of the groups, empty."""
    made = SmallCoordinator()
    made.show_topics()
    return made


def offsets_of(small: SmallCoordinator, group_id: str) -> dict[tuple[str, int], int]:
    (reply,) = small.ask(fetch(group_id))
    assert reply.error is ErrorCode.NONE
    return {(topic, each.partition): each.offset for topic, partitions in reply.topics for each in partitions}


def list_groups(coordinator: GroupCoordinator) -> list[ListReply]:
    told: list[list[ListReply]] = []
    run_steps(coordinator.submit_to_all(ListGroups(), told.append))
    (replies,) = told
    return replies


def test_nobody_is_coordinator_before_the_topic_is_there() -> None:
    small = SmallCoordinator()
    small.show_topics({"t": 1})
    assert not small.coordinator.exists
    assert small.coordinator.state_of("g") is ErrorCode.NOT_COORDINATOR
    assert small.ask(Heartbeat("g", 1, "m", None)) == [ErrorCode.NOT_COORDINATOR]
    assert list_groups(small.coordinator) == []


def test_commit_is_answered_by_the_flush_that_covers_it(small: SmallCoordinator) -> None:
    first, second = small.ask(commit("g", 7)), small.ask(commit("g", 8))
    assert (first, second) == ([], [])
    small.flush()
    assert [list(reply.errors) for reply in first + second] == [[ErrorCode.NONE], [ErrorCode.NONE]]
    assert offsets_of(small, "g") == {("t", 0): 8}


def test_commit_that_comes_during_a_flush_waits_for_the_next_one(small: SmallCoordinator) -> None:
    first = small.ask(commit("g", 7))
    plan = small.directory.scheduler.plan(0)
    assert plan is not None
    second = small.ask(commit("g", 8))
    plan.execute(small.disk)
    small.directory.scheduler.complete(plan, None, 0)
    assert first
    assert not second
    small.flush()
    assert second


def test_refused_append_is_answered_and_changes_nothing(small: SmallCoordinator) -> None:
    small.disk.faults.fail("write", error=errno.ENOSPC)
    (reply,) = small.ask(commit("g", 7))
    assert list(reply.errors) == [ErrorCode.NOT_COORDINATOR]
    assert offsets_of(small, "g") == {}


def test_records_beyond_max_message_bytes_are_refused(small: SmallCoordinator) -> None:
    for partition in small.partitions:
        partition.update_config(LogConfig(max_message_bytes=100), 0)
    (reply,) = small.ask(commit("g", 7))
    assert list(reply.errors) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]


def test_overlong_group_id_is_refused(small: SmallCoordinator) -> None:
    (reply,) = small.ask(commit("g" * (GROUP_ID_LENGTH_MAX + 1), 7))
    assert list(reply.errors) == [ErrorCode.INVALID_GROUP_ID]


def test_groups_are_told_to_wait_while_they_load_and_are_then_as_they_were(small: SmallCoordinator) -> None:
    for number in range(30):
        small.ask(commit(f"g{number}", number))
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    assert {small.coordinator.state_of(f"g{number}") for number in range(30)} == {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    }
    assert small.ask(commit("g1", 99))[0].errors == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)
    assert {reply.error for reply in list_groups(small.coordinator)} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    small.loop.turn()
    for number in range(30):
        assert offsets_of(small, f"g{number}") == {("t", 0): number}
    assert sum(len(reply.groups) for reply in list_groups(small.coordinator)) == 30


def test_classic_members_are_not_told_that_their_group_loads(small: SmallCoordinator) -> None:
    small.ask(commit("g", 7))
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    assert small.coordinator.state_of("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert small.ask(Heartbeat("g", 1, "m", None)) == [ErrorCode.NONE]
    (synced,) = small.ask(SyncGroup("g", 1, "m", None, None, None, ()))
    assert synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    small.loop.turn()
    assert small.ask(Heartbeat("g", 1, "m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_partition_that_cannot_be_read_leaves_the_others_in_service(small: SmallCoordinator) -> None:
    by_partition = {number: small.ask(commit(f"g{number}", number)) for number in range(12)}
    small.flush()
    assert all(by_partition.values())
    small.crash()
    small.start()
    small.disk.faults.fail("read", path_contains=f"{OFFSETS_TOPIC}-0/", times=None)
    small.show_topics()
    small.loop.turn()
    states = {number: small.coordinator.state_of(f"g{number}") for number in range(12)}
    assert set(states.values()) == {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_loading_leaves_the_loop_to_others_after_each_slice() -> None:
    small = SmallCoordinator()
    small.show_topics()
    for number in range(300):
        small.ask(commit("g", number))
    small.flush()
    small.crash()
    small.start()
    small.is_flushing = True
    times = iter(range(10_000_000))
    # Each look at the clock finds a millisecond more: a slice is over at its first look.
    small.loop.time = lambda: next(times) / 1000  # type: ignore[method-assign]
    small.show_topics()
    small.loop.turn()
    # It pauses while a flush is under way, and so takes its timers one by one.
    assert small.coordinator.state_of("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    pauses_count = 0
    while small.coordinator.state_of("g"):
        small.loop.advance(1)
        pauses_count += 1
        assert pauses_count < 200
    assert pauses_count > 300 / 16 - 2
    assert offsets_of(small, "g") == {("t", 0): 299}


def test_deadline_of_a_group_is_kept_by_the_loops_timer() -> None:
    small = SmallCoordinator(initial_rebalance_delay_ms=500)
    small.show_topics()
    joined = small.ask(join("g"))
    small.advance(499)
    assert not joined
    small.advance(2)
    (reply,) = joined
    assert reply.error is ErrorCode.NONE
    assert reply.generation == 1


def test_deadline_that_a_moved_clock_has_passed_is_met_at_once() -> None:
    small = SmallCoordinator(initial_rebalance_delay_ms=500)
    small.show_topics()
    joined = small.ask(join("g"))
    small.clock.advance(499)
    small.coordinator.on_clock_moved()
    assert not joined
    small.clock.advance(2)
    small.coordinator.on_clock_moved()
    assert len(joined) == 1


def test_deadlines_of_many_shards_leave_the_loop_to_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCoordinator()
    small.show_topics()
    looked_at: list[GroupShard] = []

    def on_time(shard: GroupShard, moment: Moment) -> None:
        looked_at.append(shard)
        small.loop.now_s += TIMER_TURN_S
        shard._expiry.start(moment)

    monkeypatch.setattr(GroupShard, "on_time", on_time)
    small.clock.advance(GroupSettings().offsets_retention_check_interval_ms)
    for turns_count in range(1, PARTITIONS + 1):
        small.coordinator._shards._on_timer()
        assert len(looked_at) == turns_count
    assert len(set(looked_at)) == PARTITIONS


def test_shard_that_fails_does_not_keep_the_others_from_their_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCoordinator()
    small.show_topics()
    looked_at: list[GroupShard] = []

    def on_time(shard: GroupShard, moment: Moment) -> None:
        looked_at.append(shard)
        if shard is looked_at[0]:
            raise AssertionError("a bug")

    monkeypatch.setattr(GroupShard, "on_time", on_time)
    with pytest.raises(AssertionError, match="a bug"):
        small.coordinator._shards._on_timer()
    with pytest.raises(AssertionError, match="a bug"):
        small.coordinator._shards._on_timer()
    assert len(set(looked_at)) == PARTITIONS


def test_deleted_topic_takes_its_offsets_along_for_good(small: SmallCoordinator) -> None:
    small.ask(commit("g", 7))
    small.flush()
    small.show_topics({OFFSETS_TOPIC: PARTITIONS})
    small.advance(1)
    small.flush()
    assert offsets_of(small, "g") == {}
    small.crash()
    small.start()
    small.show_topics({OFFSETS_TOPIC: PARTITIONS, "t": 2})
    small.loop.turn()
    assert offsets_of(small, "g") == {}


def test_stop_writes_what_is_left_of_a_deleted_topic(small: SmallCoordinator) -> None:
    small.ask(commit("g", 7))
    small.flush()
    small.show_topics({OFFSETS_TOPIC: PARTITIONS})
    small.coordinator.stop()
    small.flush()
    small.crash()
    small.start()
    small.show_topics({OFFSETS_TOPIC: PARTITIONS, "t": 2})
    small.loop.turn()
    assert offsets_of(small, "g") == {}


def test_stop_answers_who_is_parked_and_everything_after(small: SmallCoordinator) -> None:
    waiting = SmallCoordinator(initial_rebalance_delay_ms=500)
    waiting.show_topics()
    joined = waiting.ask(join("g"))
    waiting.coordinator.stop()
    assert [reply.error for reply in joined] == [ErrorCode.NOT_COORDINATOR]
    assert waiting.ask(join("g"))[0].error is ErrorCode.NOT_COORDINATOR
    waiting.advance(10_000)
    waiting.coordinator.stop()


def test_failing_disk_answers_everything(small: SmallCoordinator) -> None:
    committed = small.ask(commit("g", 7))
    for partition in small.partitions:
        partition.waiting.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    small.coordinator.on_directory_offline()
    assert [list(reply.errors) for reply in committed] == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]
    assert small.coordinator.state_of("any") is ErrorCode.COORDINATOR_NOT_AVAILABLE


def coordinator_errors(small: SmallCoordinator) -> list[ErrorCode]:
    """What a group of each partition is answered."""
    by_partition = {partition_of(f"g{number}", PARTITIONS): f"g{number}" for number in range(20)}
    return [small.coordinator.state_of(by_partition[index]) for index in range(PARTITIONS)]


def test_partition_that_is_made_late_is_loaded_then() -> None:
    small = SmallCoordinator()
    late = small.retire(1)
    small.show_topics()
    assert coordinator_errors(small) == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    assert small.coordinator.exists
    small.serve(late)
    small.show_topics()
    assert coordinator_errors(small) == [ErrorCode.NONE] * PARTITIONS


def test_partition_that_is_led_no_more_is_unloaded_and_its_members_are_sent_away() -> None:
    small = SmallCoordinator(initial_rebalance_delay_ms=500)
    small.show_topics()
    joined = {number: small.ask(join(f"g{number}")) for number in range(12)}
    assert not any(joined.values())
    assert small.coordinator.member_bytes.held_bytes > 0
    for index in range(PARTITIONS):
        small.retire(index)
    small.show_topics()
    assert {reply.error for (reply,) in joined.values()} == {ErrorCode.NOT_COORDINATOR}
    assert small.coordinator.member_bytes.held_bytes == 0
    assert coordinator_errors(small) == [ErrorCode.NOT_COORDINATOR] * PARTITIONS
    assert list_groups(small.coordinator) == []
    small.advance(10_000)


def test_commit_that_waits_when_its_partition_leaves_is_sent_to_the_next_coordinator(small: SmallCoordinator) -> None:
    committed = small.ask(commit("g", 7))
    for index in range(PARTITIONS):
        small.retire(index)
    assert [list(reply.errors) for reply in committed] == [[ErrorCode.NOT_COORDINATOR]]


def test_partition_that_is_led_in_a_new_epoch_is_loaded_anew(small: SmallCoordinator) -> None:
    for number in range(12):
        small.ask(commit(f"g{number}", number))
    small.flush()
    joined = small.ask(join("members"))
    small.flush()
    assert joined
    for partition in small.partitions:
        lead(partition, 5)
    small.show_topics()
    assert set(coordinator_errors(small)) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    small.loop.turn()
    assert {number: offsets_of(small, f"g{number}") for number in range(12)} == {
        number: {("t", 0): number} for number in range(12)
    }
    small.show_topics()
    assert coordinator_errors(small) == [ErrorCode.NONE] * PARTITIONS, "the same epoch is not loaded twice"


def test_offset_that_was_loaded_before_its_flush_is_told_after_it(small: SmallCoordinator) -> None:
    refused = small.ask(commit("g", 7))
    for partition in small.partitions:
        lead(partition, 5)
    small.show_topics()
    small.loop.turn()
    assert list(refused[0].errors) == [ErrorCode.NOT_COORDINATOR]
    replies = small.ask(fetch("g"))
    assert not replies, "a crash would take the offset back"
    small.flush()
    assert len(replies) == 1
    assert offsets_of(small, "g") == {("t", 0): 7}


def test_partition_that_is_led_anew_after_the_disk_failed_is_not_loaded(small: SmallCoordinator) -> None:
    small.ask(commit("g", 7))
    small.directory.directory_failed(OSError(errno.EIO, "a sync failed"))
    small.coordinator.on_directory_offline()
    for partition in small.partitions:
        lead(partition, 5)
    small.show_topics()
    small.loop.turn()
    assert set(coordinator_errors(small)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert len(small.ask(fetch("g"))) == 1, "what nothing can make stable is refused, not kept waiting"


def test_broker_whose_lease_is_over_decides_nothing_and_continues_with_what_it_logged(small: SmallCoordinator) -> None:
    committed = small.ask(commit("g", 7))
    small.lease.end()
    for partition in small.partitions:
        partition.waiting.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [list(reply.errors) for reply in committed] == [[ErrorCode.NOT_COORDINATOR]]
    assert [list(reply.errors) for reply in small.ask(commit("other", 1))] == [[ErrorCode.NOT_COORDINATOR]]
    small.loop.turn()
    assert small.coordinator.state_of("g") is ErrorCode.NOT_COORDINATOR
    small.lease.extend(LEASE_FOREVER)
    assert small.coordinator.state_of("g") is ErrorCode.NONE
    small.flush()
    assert offsets_of(small, "g") == {("t", 0): 7}


def suspend(small: SmallCoordinator, *, is_suspended: bool) -> None:
    """The lease ended, or was extended, and the partitions have taken that over."""
    small.lifecycle.is_suspended = is_suspended
    small.take_lease()


def test_members_that_wait_for_their_group_are_sent_away_when_the_lease_ends() -> None:
    small = SmallCoordinator(initial_rebalance_delay_ms=3_000)
    small.show_topics()
    small.loop.turn()
    joined, committed = small.ask(join("g")), small.ask(commit("other", 8))
    assert joined == committed == []
    suspend(small, is_suspended=True)
    assert [reply.error for reply in joined] == [ErrorCode.NOT_COORDINATOR]
    assert [list(reply.errors) for reply in committed] == [[ErrorCode.NOT_COORDINATOR]]
    suspend(small, is_suspended=False)
    small.flush()
    assert offsets_of(small, "other") == {("t", 0): 8}, "what is in the log counts when this broker coordinates again"


def test_extended_lease_continues_with_the_groups_in_memory_at_once(small: SmallCoordinator) -> None:
    for number in range(12):
        small.ask(commit(f"g{number}", number))
    small.flush()
    shards = list(small.coordinator._shards._shards)
    for _ in range(3):
        suspend(small, is_suspended=True)
        assert set(coordinator_errors(small)) == {ErrorCode.NOT_COORDINATOR}
        assert small.ask(commit("g1", 99))[0].errors == (ErrorCode.NOT_COORDINATOR,)
        assert small.ask(Heartbeat("g1", 1, "m", None)) == [ErrorCode.NOT_COORDINATOR]
        suspend(small, is_suspended=False)
        # The loop has not turned, so nothing was read from the log.
        assert coordinator_errors(small) == [ErrorCode.NONE] * PARTITIONS
    assert list(small.coordinator._shards._shards) == shards
    assert {number: offsets_of(small, f"g{number}") for number in range(12)} == {
        number: {("t", 0): number} for number in range(12)
    }
    committed = small.ask(commit("g1", 13))
    small.flush()
    assert list(committed[0].errors) == [ErrorCode.NONE]


def test_session_does_not_end_while_the_lease_is_over() -> None:
    small = SmallCoordinator()
    small.show_topics()
    (joined,) = small.ask(join("g"))
    suspend(small, is_suspended=True)
    small.advance(60_000)
    suspend(small, is_suspended=False)
    small.advance(9_000)
    heartbeat = Heartbeat("g", joined.generation, joined.member_id, None)
    assert small.ask(heartbeat) == [ErrorCode.NONE], "heartbeats were refused for longer than a session"
    small.advance(10_001)
    assert small.ask(heartbeat) == [ErrorCode.UNKNOWN_MEMBER_ID], "its session has restarted"


def test_session_does_not_end_before_the_end_of_the_lease_is_noticed() -> None:
    small = SmallCoordinator()
    small.show_topics()
    (joined,) = small.ask(join("g"))
    small.lease.end()
    small.advance(10_001)
    small.lease.extend(LEASE_FOREVER)
    heartbeat = Heartbeat("g", joined.generation, joined.member_id, None)
    assert small.ask(heartbeat) == [ErrorCode.NONE]
    small.advance(10_001)
    assert small.ask(heartbeat) == [ErrorCode.UNKNOWN_MEMBER_ID], "the timer continues"


def test_sessions_restart_after_a_short_lapse_in_which_a_heartbeat_was_refused() -> None:
    small = SmallCoordinator(watches_lease=True)
    small.show_topics()
    (joined,) = small.ask(join("g"))
    heartbeat = Heartbeat("g", joined.generation, joined.member_id, None)
    small.advance(9_000)
    small.lease.end()
    assert small.ask(heartbeat) == [ErrorCode.NOT_COORDINATOR]
    small.lease.extend(LEASE_FOREVER)
    small.lease_watch.check()
    small.advance(9_000)
    assert small.ask(heartbeat) == [ErrorCode.NONE]
    small.advance(10_001)
    assert small.ask(heartbeat) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_sessions_restart_after_a_short_lapse_in_which_a_deadline_was_due() -> None:
    small = SmallCoordinator(watches_lease=True)
    small.show_topics()
    (joined,) = small.ask(join("g"))
    heartbeat = Heartbeat("g", joined.generation, joined.member_id, None)
    small.lease.end()
    small.advance(10_001)
    assert set(coordinator_errors(small)) == {ErrorCode.NOT_COORDINATOR}
    small.lease.extend(LEASE_FOREVER)
    small.lease_watch.check()
    small.advance(9_000)
    assert small.ask(heartbeat) == [ErrorCode.NONE]


def test_leadership_that_ends_during_a_lapse_unloads_the_groups() -> None:
    small = SmallCoordinator(initial_rebalance_delay_ms=500)
    small.show_topics()
    small.ask(join("g"))
    suspend(small, is_suspended=True)
    for partition in small.partitions:
        resign(partition)
    small.show_topics()
    assert list(small.coordinator._shards._shards) == [None] * PARTITIONS
    assert small.coordinator.member_bytes.held_bytes == 0


def test_groups_are_read_again_if_another_epoch_was_seen_during_a_lapse(small: SmallCoordinator) -> None:
    for number in range(12):
        small.ask(commit(f"g{number}", number))
    small.flush()
    before = list(small.coordinator._shards._shards)
    suspend(small, is_suspended=True)
    for partition in small.partitions:
        lead(partition, 5)
    small.show_topics()
    assert set(coordinator_errors(small)) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    small.loop.turn()
    assert not set(before) & set(small.coordinator._shards._shards)
    assert offsets_of(small, "g7") == {("t", 0): 7}


def test_load_that_a_lapse_interrupts_is_not_repeated(small: SmallCoordinator) -> None:
    for number in range(12):
        small.ask(commit(f"g{number}", number))
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    suspend(small, is_suspended=True)
    suspend(small, is_suspended=False)
    assert set(coordinator_errors(small)) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    suspend(small, is_suspended=True)
    small.loop.turn()
    assert set(coordinator_errors(small)) == {ErrorCode.NOT_COORDINATOR}
    suspend(small, is_suspended=False)
    assert coordinator_errors(small) == [ErrorCode.NONE] * PARTITIONS
    assert offsets_of(small, "g7") == {("t", 0): 7}


def test_shard_whose_load_failed_fails_through_a_lapse(small: SmallCoordinator) -> None:
    committed = [small.ask(commit(f"g{number}", number)) for number in range(12)]
    small.flush()
    assert all(committed)
    small.crash()
    small.start()
    small.disk.faults.fail("read", path_contains=OFFSETS_TOPIC, times=None)
    small.show_topics()
    small.loop.turn()
    suspend(small, is_suspended=True)
    suspend(small, is_suspended=False)
    assert set(coordinator_errors(small)) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_topic_that_is_deleted_during_a_lapse_takes_its_offsets_along(small: SmallCoordinator) -> None:
    small.ask(commit("g", 7))
    small.flush()
    suspend(small, is_suspended=True)
    small.show_topics({OFFSETS_TOPIC: PARTITIONS})
    suspend(small, is_suspended=False)
    small.advance(1)
    small.flush()
    assert offsets_of(small, "g") == {}


def test_load_for_an_old_epoch_is_ignored(small: SmallCoordinator) -> None:
    for number in range(12):
        small.ask(commit(f"g{number}", number))
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    before = [shard for shard in small.coordinator._shards._shards if shard is not None]
    for partition in small.partitions:
        lead(partition, 5)
    small.show_topics()
    small.loop.turn()
    assert {shard.error for shard in before} == {ErrorCode.NOT_COORDINATOR}
    assert [len(shard.shard) for shard in before] == [0] * PARTITIONS, "nothing more was loaded into it"
    assert coordinator_errors(small) == [ErrorCode.NONE] * PARTITIONS
    assert offsets_of(small, "g7") == {("t", 0): 7}


def test_topic_of_the_groups_that_is_deleted_and_made_anew_begins_empty(small: SmallCoordinator) -> None:
    small.ask(commit("g", 7))
    small.flush()
    for index in range(PARTITIONS):
        small.delete(index)
    small.show_topics({"t": 2})
    assert not small.coordinator.exists
    assert small.coordinator.state_of("g") is ErrorCode.NOT_COORDINATOR
    small.make_logs(topic_number=10)
    small.show_topics({OFFSETS_TOPIC: PARTITIONS, "t": 2})
    assert coordinator_errors(small) == [ErrorCode.NONE] * PARTITIONS
    assert offsets_of(small, "g") == {}
    committed = small.ask(commit("g", 8))
    small.flush()
    assert committed
    assert offsets_of(small, "g") == {("t", 0): 8}

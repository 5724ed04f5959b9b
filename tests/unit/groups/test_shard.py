from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.groups.commands import (
    Command,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetToCommit,
    SyncGroup,
)
from ottla.groups.replies import (
    CommitReply,
    ConsumerGroupDescription,
    ConsumerGroupHeartbeatReply,
    DescribedGroup,
    FetchReply,
    JoinReply,
    ListedGroup,
    ListReply,
    SyncReply,
)
from ottla.groups.shard import DEADLINES_PER_CALL
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, RANGE, TOPIC, Coordinator

IMAGE = TopicsImage.of([TopicImage(TOPIC, UUID(int=1), 4)])


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator(topics=IMAGE)


def consumer_beat(coordinator: Coordinator, epoch: int = 0, member_id: str = "m") -> ConsumerGroupHeartbeatReply:
    command = ConsumerGroupHeartbeat(
        GROUP, member_id, epoch, "c", "/h", rebalance_timeout_ms=60_000, topic_names=[TOPIC], owned=[]
    )
    return coordinator.ask(command).of(ConsumerGroupHeartbeatReply)


class TestReplies:
    def test_leave_when_the_log_is_stable_up_to_their_batch(self, coordinator: Coordinator) -> None:
        coordinator.log.holds_back = True
        first, second = coordinator.commit({0: 1}), coordinator.commit({0: 2})
        coordinator.shard.on_stable(1)
        assert (first.waits, second.waits) == (False, True)
        coordinator.flush()
        assert second.of(CommitReply).errors == [ErrorCode.NONE]

    def test_unstable_state_is_not_revealed(self, coordinator: Coordinator) -> None:
        coordinator.log.holds_back = True
        coordinator.commit({0: 1})
        fetched, listed, described = (
            coordinator.ask_committed(),
            coordinator.ask(ListGroups()),
            coordinator.ask(DescribeGroup(GROUP)),
        )
        assert fetched.waits
        assert listed.waits
        assert described.waits
        coordinator.flush()
        assert fetched.of(FetchReply).topics[0].partitions[0].offset == 1

    def test_commands_during_a_flush_are_decided_on_the_applied_state(self, coordinator: Coordinator) -> None:
        (joined,) = coordinator.stable_group(1)
        coordinator.log.holds_back = True
        commit = coordinator.commit({0: 5}, joined)
        fetched = coordinator.ask_committed()
        coordinator.flush()
        assert commit.of(CommitReply).errors == [ErrorCode.NONE]
        assert fetched.of(FetchReply).topics[0].partitions[0].offset == 5

    def test_reply_may_submit_the_next_command(self, coordinator: Coordinator) -> None:
        """As a connection does that has the next request in its buffer."""
        asked = [coordinator.ask_join(client_id=name) for name in "ab"]
        told: list[Any] = []

        def sync(joined: JoinReply) -> None:
            told.append(joined)
            command = SyncGroup(GROUP, joined.generation, joined.member_id, None, None, None, [])
            coordinator.shard.submit(command, told.append, coordinator.now)

        leader, follower = (one.member_id for one in coordinator.describe().members)
        for member_id in (leader, follower):
            command = JoinGroup(GROUP, member_id, None, "c", "/h", "consumer", RANGE, 10_000, 60_000)
            coordinator.shard.submit(command, sync, coordinator.now)
        assert [one.of(JoinReply).error for one in asked] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
        coordinator.pass_ms(6_000)
        assert [type(one) for one in told] == [JoinReply, JoinReply, SyncReply, SyncReply]
        assert coordinator.state() == "Stable"


class TestTime:
    def test_many_deadlines_take_effect_a_few_at_a_time(self, coordinator: Coordinator) -> None:
        for number in range(DEADLINES_PER_CALL + 10):
            coordinator.ask_join(requires_known_member_id=True, group_id=f"group{number}")
        coordinator.monotonic_ms += 20_000
        coordinator.shard.on_time(coordinator.now)
        assert len(coordinator.shard) == 10
        due_ms = coordinator.shard.next_due_ms()
        assert due_ms is not None
        assert due_ms < coordinator.monotonic_ms
        coordinator.shard.on_time(coordinator.now)
        assert len(coordinator.shard) == 0

    def test_wall_clock_that_jumps_ends_no_session(self, coordinator: Coordinator) -> None:
        (joined,) = coordinator.stable_group(1)
        coordinator.wall_ms += 3_600_000
        coordinator.pass_ms(5_000)
        coordinator.wall_ms -= 7_200_000
        coordinator.pass_ms(4_000)
        assert coordinator.heartbeat(joined) is ErrorCode.NONE


class TestFailing:
    COMMANDS: tuple[Command, ...] = (
        JoinGroup("g", "m", None, "c", "/h", "consumer", RANGE, 10_000, 60_000),
        SyncGroup("g", 1, "m", None, None, None, []),
        Heartbeat("g", 1, "m", None),
        LeaveGroup("g", []),
        CommitOffsets("g", "", None, -1, [OffsetToCommit(TOPIC, 0, 1, -1, "")]),
        FetchOffsets("g", None),
        DeleteOffsets("g", []),
        ListGroups(),
        DescribeGroup("g"),
        DeleteGroup("g"),
        ConsumerGroupHeartbeat("g", "m", 0, "c", "/h"),
        DescribeConsumerGroup("g"),
    )

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
    def test_failed_shard_answers_everything_with_its_error(self, coordinator: Coordinator, command: Command) -> None:
        coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
        reply = coordinator.ask(command).reply
        error = reply if isinstance(reply, ErrorCode) else getattr(reply, "error", None) or reply.errors[0]
        assert error is ErrorCode.NOT_COORDINATOR

    def test_each_waiting_request_gets_one_answer(self, coordinator: Coordinator) -> None:
        leader, follower = coordinator.join_together([coordinator.ask_join(), coordinator.ask_join()])
        synced, joining = coordinator.ask_sync(follower), coordinator.ask_join(group_id="other")
        coordinator.log.holds_back = True
        waiting = [
            coordinator.commit({0: 1}, group_id="simple"),
            coordinator.ask_committed(),
            coordinator.ask(ListGroups()),
            coordinator.ask(DescribeGroup(GROUP)),
            coordinator.ask(DeleteGroup("simple")),
            coordinator.ask(DescribeConsumerGroup("x")),
        ]
        coordinator.shard.fail_all(ErrorCode.NOT_COORDINATOR)
        coordinator.flush()
        coordinator.pass_ms(600_000)
        told = [one.reply for one in (synced, joining, *waiting)]
        assert told[2] == CommitReply((ErrorCode.NOT_COORDINATOR,))
        errors = {reply if isinstance(reply, ErrorCode) else reply.error for reply in told if reply != told[2]}
        assert errors == {ErrorCode.NOT_COORDINATOR}
        assert coordinator.shard.next_due_ms() is None
        assert leader.error is ErrorCode.NONE

    def test_reply_that_submits_while_the_shard_fails_is_refused(self, coordinator: Coordinator) -> None:
        told: list[Any] = []
        heartbeat = Heartbeat(GROUP, 1, "m", None)
        command = JoinGroup(GROUP, "", None, "c", "/h", "consumer", RANGE, 10_000, 60_000, None, False)
        coordinator.shard.submit(
            command, lambda reply: coordinator.shard.submit(heartbeat, told.append, coordinator.now), coordinator.now
        )
        coordinator.shard.fail_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


class TestGroupsAsAWhole:
    def test_list_filters_by_state_and_kind_without_regard_to_case(self, coordinator: Coordinator) -> None:
        coordinator.stable_group(1)
        coordinator.commit({0: 1}, group_id="simple")

        def listed(*states: str, kinds: tuple[str, ...] = ()) -> list[ListedGroup]:
            return list(coordinator.ask(ListGroups(states, kinds)).of(ListReply).groups)

        stable = ListedGroup(GROUP, "consumer", "Stable", "classic")
        simple = ListedGroup("simple", "", "Empty", "classic")
        assert listed() == [stable, simple]
        assert listed("STABLE") == [stable]
        assert listed("Empty", "Dead", kinds=("Classic",)) == [simple]
        assert listed(kinds=("consumer",)) == []

    def test_group_with_members_is_not_deleted(self, coordinator: Coordinator) -> None:
        coordinator.stable_group(1)
        assert coordinator.delete() is ErrorCode.NON_EMPTY_GROUP
        assert coordinator.delete("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
        assert coordinator.delete("") is ErrorCode.GROUP_ID_NOT_FOUND
        assert coordinator.state() == "Stable"

    def test_deleted_group_is_gone_with_its_offsets_for_good(self, coordinator: Coordinator) -> None:
        (joined,) = coordinator.stable_group(1)
        coordinator.commit({0: 1, 1: 2}, joined)
        coordinator.leave((joined.member_id, None))
        assert coordinator.delete() is ErrorCode.NONE
        assert all(value is None for _, value in coordinator.log.batches[-1])
        for _ in range(2):
            assert coordinator.state() == "Dead"
            assert coordinator.committed() == {}
            coordinator.restart()

    def test_deletion_that_the_log_refuses_deletes_nothing(self, coordinator: Coordinator) -> None:
        coordinator.commit({0: 1})
        coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
        assert coordinator.delete() is ErrorCode.NOT_COORDINATOR
        assert coordinator.committed() == {(TOPIC, 0): 1}

    def test_id_that_was_given_out_is_unknown_after_its_group_was_deleted(self, coordinator: Coordinator) -> None:
        coordinator.commit({0: 1})
        told = coordinator.ask_join(requires_known_member_id=True).reply
        assert coordinator.delete() is ErrorCode.NONE
        assert coordinator.ask_join(told.member_id).of(JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_description_of_a_group_that_is_not_classic_says_so(self, coordinator: Coordinator) -> None:
        dead = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, GROUP, "Dead")
        assert coordinator.describe() == dead
        consumer_beat(coordinator)
        assert coordinator.describe() == dead


class TestKinds:
    def test_empty_classic_group_becomes_a_consumer_group_with_its_offsets(self, coordinator: Coordinator) -> None:
        (joined,) = coordinator.stable_group(1)
        coordinator.commit({0: 5}, joined)
        coordinator.leave((joined.member_id, None))
        batches_count = len(coordinator.log.batches)
        assert consumer_beat(coordinator).error is ErrorCode.NONE
        assert len(coordinator.log.batches) == batches_count + 1
        for _ in range(2):
            description = coordinator.ask(DescribeConsumerGroup(GROUP)).of(ConsumerGroupDescription)
            assert [one.member_id for one in description.members] == ["m"]
            assert coordinator.committed() == {(TOPIC, 0): 5}
            coordinator.restart()

    def test_simple_consumers_group_becomes_a_consumer_group(self, coordinator: Coordinator) -> None:
        coordinator.commit({0: 5})
        assert consumer_beat(coordinator).error is ErrorCode.NONE
        assert coordinator.committed() == {(TOPIC, 0): 5}

    def test_change_of_kind_that_the_log_refuses_changes_nothing(self, coordinator: Coordinator) -> None:
        (joined,) = coordinator.stable_group(1)
        coordinator.leave((joined.member_id, None))
        coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
        assert consumer_beat(coordinator).error is ErrorCode.NOT_COORDINATOR
        assert coordinator.state() == "Empty"
        assert consumer_beat(Coordinator(topics=IMAGE)).error is ErrorCode.NONE

    def test_new_consumer_group_that_the_log_refuses_is_not_there(self, coordinator: Coordinator) -> None:
        coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
        assert consumer_beat(coordinator).error is ErrorCode.NOT_COORDINATOR
        assert len(coordinator.shard) == 0
        coordinator.log.refuses_with = None
        coordinator.pass_ms(120_000)
        assert consumer_beat(coordinator).error is ErrorCode.NONE

    def test_classic_group_with_members_takes_no_consumer(self, coordinator: Coordinator) -> None:
        coordinator.stable_group(1)
        assert consumer_beat(coordinator).error is ErrorCode.GROUP_ID_NOT_FOUND
        assert coordinator.state() == "Stable"

    def test_emptied_consumer_group_becomes_a_classic_one_with_its_offsets(self, coordinator: Coordinator) -> None:
        joined = consumer_beat(coordinator)
        assert coordinator.commit_errors({0: 5}, JoinReply(ErrorCode.NONE, "m", joined.member_epoch)) == {
            ErrorCode.NONE
        }
        assert coordinator.ask_join().of(JoinReply).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        consumer_beat(coordinator, -1)
        assert coordinator.ask_join("old").of(JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID
        coordinator.stable_group(1)
        for _ in range(2):
            assert coordinator.state() == "Stable"
            assert coordinator.committed() == {(TOPIC, 0): 5}
            coordinator.restart()

    def test_requests_of_the_classic_protocol_find_no_member_in_a_consumer_group(
        self, coordinator: Coordinator
    ) -> None:
        consumer_beat(coordinator)
        member = JoinReply(ErrorCode.NONE, "m", 1)
        assert coordinator.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID
        assert coordinator.ask_sync(member).of(SyncReply).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert coordinator.leave(("m", None)).members[0].error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_silent_consumer_is_removed_and_the_removal_is_logged(self, coordinator: Coordinator) -> None:
        consumer_beat(coordinator)
        coordinator.pass_ms(coordinator.settings.consumer_session_timeout_ms)
        coordinator.restart()
        description = coordinator.ask(DescribeConsumerGroup(GROUP)).of(ConsumerGroupDescription)
        assert (description.state, description.members) == ("Empty", [])

    def test_removal_that_the_log_refuses_is_tried_again(self, coordinator: Coordinator) -> None:
        consumer_beat(coordinator)
        coordinator.log.refuses_with = ErrorCode.KAFKA_STORAGE_ERROR
        coordinator.pass_ms(coordinator.settings.consumer_session_timeout_ms)
        coordinator.log.refuses_with = None
        coordinator.pass_ms(5_000)
        assert coordinator.ask(DescribeConsumerGroup(GROUP)).of(ConsumerGroupDescription).state == "Empty"

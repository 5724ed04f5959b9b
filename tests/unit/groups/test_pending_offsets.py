from __future__ import annotations

import random
from typing import Final
from uuid import UUID

import pytest

from ottla.groups.commands import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicPartitions,
    TransactionalProducer,
)
from ottla.groups.offset_records import offset_key, offset_key_prefix, offset_value
from ottla.groups.replies import CommitReply, CommittedOffset, ConsumerGroupHeartbeatReply, FetchReply, TopicOffsets
from ottla.groups.settings import GroupSettings
from ottla.groups.shared_bytes import OFFSET_BYTES_MAX
from ottla.groups.topics_image import TopicImage, TopicsImage
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, START_WALL_MS, TOPIC, Coordinator

UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT
FIRST, SECOND = 11, 12
PLACE: Final = (TOPIC, 0)
MINUTE_MS: Final = 60_000


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_offset_of_an_open_transaction_is_not_shown(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5})
    assert coordinator.commit_errors({0: 9, 1: 9}, producer_id=FIRST) == {ErrorCode.NONE}
    assert coordinator.committed() == {PLACE: 5}


def test_stable_offsets_are_refused_where_a_transaction_may_change_them(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5, 2: 5})
    coordinator.commit({0: 9, 1: 9}, producer_id=FIRST)
    wanted = [TopicPartitions(TOPIC, [0, 1, 2, 3]), TopicPartitions("other", [0])]
    asked = coordinator.ask(FetchOffsets(GROUP, wanted, requires_stable=True))
    assert asked.of(FetchReply) == FetchReply(
        ErrorCode.NONE,
        [
            TopicOffsets(
                TOPIC,
                [
                    CommittedOffset(0, error=UNSTABLE),
                    CommittedOffset(1, error=UNSTABLE),
                    CommittedOffset(2, 5, 7),
                    CommittedOffset(3),
                ],
            ),
            TopicOffsets("other", [CommittedOffset(0)]),
        ],
    )


def test_all_stable_offsets_of_a_group_include_those_that_are_only_pending(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5, 2: 5})
    coordinator.commit({0: 9, 1: 9}, producer_id=FIRST)
    coordinator.commit({4: 9}, topic="other", producer_id=FIRST)
    assert coordinator.stable() == {PLACE: UNSTABLE, (TOPIC, 1): UNSTABLE, (TOPIC, 2): 5, ("other", 4): UNSTABLE}
    assert coordinator.committed() == {PLACE: 5, (TOPIC, 2): 5}


def test_fetched_offsets_stay_as_they_were_when_they_were_requested(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5}, producer_id=FIRST)
    asked = coordinator.ask(FetchOffsets(GROUP, None, requires_stable=True))
    coordinator.end(FIRST)
    assert asked.of(FetchReply).topics == [TopicOffsets(TOPIC, [CommittedOffset(0, error=UNSTABLE)])]


def test_commit_of_a_transaction_shows_all_its_offsets_at_once(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5, 3: 5})
    coordinator.commit({0: 9, 1: 9}, metadata="note", producer_id=FIRST)
    coordinator.commit({0: 7}, group_id="other", producer_id=FIRST)
    assert coordinator.end(FIRST) is ErrorCode.NONE
    assert coordinator.stable() == {PLACE: 9, (TOPIC, 1): 9, (TOPIC, 3): 5}
    assert coordinator.stable("other") == {PLACE: 7}
    reply = coordinator.ask_committed(topics=[TopicPartitions(TOPIC, [1])]).of(FetchReply)
    assert reply.topics[0].partitions[0] == CommittedOffset(1, 9, 7, "note")


def test_abort_of_a_transaction_shows_none_of_its_offsets(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5})
    coordinator.commit({0: 9, 1: 9}, producer_id=FIRST)
    coordinator.end(FIRST, commits=False)
    assert coordinator.stable() == {PLACE: 5}


def test_group_that_only_has_pending_offsets_exists_until_they_are_aborted(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    assert coordinator.state() == "Empty"
    coordinator.end(FIRST, commits=False)
    assert coordinator.state() == "Dead"
    coordinator.shard.assert_sound()


def test_last_offset_of_a_transaction_counts(coordinator: Coordinator) -> None:
    for offset in (9, 12, 10):
        coordinator.commit({0: offset}, producer_id=FIRST)
    coordinator.end(FIRST)
    assert coordinator.committed() == {PLACE: 10}


def test_marker_ends_the_transaction_of_its_producer_only(coordinator: Coordinator) -> None:
    coordinator.commit({0: 1}, producer_id=FIRST)
    coordinator.commit({1: 2}, producer_id=SECOND)
    coordinator.end(SECOND)
    assert coordinator.stable() == {PLACE: UNSTABLE, (TOPIC, 1): 2}


def test_marker_without_pending_offsets_changes_nothing(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5})
    assert coordinator.end(FIRST) is ErrorCode.NONE
    assert coordinator.end(FIRST, commits=False) is ErrorCode.NONE
    assert coordinator.committed() == {PLACE: 5}


def test_plain_commit_that_is_later_than_the_pending_one_stays(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9, 1: 9}, producer_id=FIRST)
    coordinator.commit({0: 3})
    assert coordinator.stable()[PLACE] is UNSTABLE
    coordinator.end(FIRST)
    assert coordinator.stable() == {PLACE: 3, (TOPIC, 1): 9}


def test_pending_offset_that_is_set_again_after_a_plain_commit_counts(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.commit({0: 3})
    coordinator.commit({0: 10}, producer_id=FIRST)
    coordinator.end(FIRST)
    assert coordinator.committed() == {PLACE: 10}


@pytest.mark.parametrize(("order", "last"), [((FIRST, SECOND), 2), ((SECOND, FIRST), 2)])
def test_of_two_transactions_the_offset_with_the_later_record_counts(
    coordinator: Coordinator, order: tuple[int, int], last: int
) -> None:
    coordinator.commit({0: 1}, producer_id=FIRST)
    coordinator.commit({0: 2}, producer_id=SECOND)
    for producer_id in order:
        coordinator.end(producer_id)
    assert coordinator.stable() == {PLACE: last}


def test_aborted_later_offset_does_not_overtake_an_earlier_one(coordinator: Coordinator) -> None:
    coordinator.commit({0: 1}, producer_id=FIRST)
    coordinator.commit({0: 2}, producer_id=SECOND)
    coordinator.end(SECOND, commits=False)
    coordinator.end(FIRST)
    assert coordinator.stable() == {PLACE: 1}


def test_marker_is_acknowledged_when_it_is_stable_and_offsets_are_shown_with_it(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.log.holds_back = True
    marker = coordinator.ask_end(FIRST, commits=True)
    fetched = coordinator.ask_committed()
    assert marker.waits
    assert fetched.waits
    coordinator.flush()
    assert marker.reply is ErrorCode.NONE
    assert fetched.of(FetchReply).topics[0].partitions[0].offset == 9


def test_repeated_marker_is_acknowledged_when_the_first_one_is_stable(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.log.holds_back = True
    coordinator.ask_end(FIRST, commits=True)
    coordinator.log.repeats_markers = True
    repeated = coordinator.ask_end(FIRST, commits=True)
    assert repeated.waits
    coordinator.flush()
    assert repeated.reply is ErrorCode.NONE


def test_repeated_marker_does_not_end_the_next_transaction(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.end(FIRST)
    coordinator.commit({0: 10}, producer_id=FIRST)
    coordinator.log.repeats_markers = True
    coordinator.end(FIRST)
    assert coordinator.stable() == {PLACE: UNSTABLE}


@pytest.mark.parametrize(
    "error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS]
)
def test_marker_that_the_log_refuses_changes_nothing(coordinator: Coordinator, error: ErrorCode) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.log.refuses_with = error
    assert coordinator.end(FIRST) is error
    assert coordinator.stable() == {PLACE: UNSTABLE}


def test_commit_that_the_log_refuses_leaves_nothing_pending(coordinator: Coordinator) -> None:
    coordinator.log.refuses_with = ErrorCode.INVALID_TXN_STATE
    assert coordinator.commit_errors({0: 9}, producer_id=FIRST) == {ErrorCode.INVALID_TXN_STATE}
    assert coordinator.state() == "Dead"


def test_marker_is_refused_while_this_broker_may_have_been_replaced(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.log.holds_back = True
    waiting = coordinator.ask_end(FIRST, commits=True)
    coordinator.shard.suspend(ErrorCode.NOT_COORDINATOR)
    assert waiting.reply is ErrorCode.NOT_COORDINATOR
    assert coordinator.end(FIRST) is ErrorCode.NOT_COORDINATOR


def commit_as(
    coordinator: Coordinator, member_id: str, epoch: int, instance_id: str | None = None, group_id: str = GROUP
) -> ErrorCode:
    offsets = [OffsetToCommit(TOPIC, 0, 9, -1, "")]
    producer = TransactionalProducer(FIRST, 0)
    asked = coordinator.ask(CommitOffsets(group_id, member_id, instance_id, epoch, offsets, producer=producer))
    (error,) = asked.of(CommitReply).errors
    return error


def test_members_of_classic_groups_commit_in_their_generation_only(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    member_id, generation = joined.member_id, joined.generation
    assert commit_as(coordinator, member_id, generation) is ErrorCode.NONE
    assert commit_as(coordinator, member_id, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit_as(coordinator, "stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(coordinator, "stranger", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_was_replaced_is_fenced(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1, instance_id="static")
    coordinator.ask_join(instance_id="static")
    found = commit_as(coordinator, joined.member_id, joined.generation, "static")
    assert found is ErrorCode.FENCED_INSTANCE_ID


def test_versions_without_a_member_commit_for_a_group_with_members(coordinator: Coordinator) -> None:
    coordinator.stable_group(1)
    assert commit_as(coordinator, "", -1) is ErrorCode.NONE


def test_member_may_commit_before_it_has_its_assignment(coordinator: Coordinator) -> None:
    joined = coordinator.join_together([coordinator.ask_join()])[0]
    assert coordinator.state() == "CompletingRebalance"
    assert commit_as(coordinator, joined.member_id, joined.generation) is ErrorCode.NONE


def test_commit_in_a_transaction_does_not_keep_the_session_alive(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1, session_timeout_ms=10_000)
    coordinator.pass_ms(6_000)
    assert commit_as(coordinator, joined.member_id, joined.generation) is ErrorCode.NONE
    coordinator.pass_ms(6_000)
    assert coordinator.state() == "Empty"


def test_unknown_group_and_empty_group_accept_a_producer_without_a_member(coordinator: Coordinator) -> None:
    assert commit_as(coordinator, "", -1, group_id="new") is ErrorCode.NONE
    assert commit_as(coordinator, "", -1, group_id="new") is ErrorCode.NONE
    assert commit_as(coordinator, "member", 3, group_id="new") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(coordinator, "member", 3, group_id="unknown") is ErrorCode.ILLEGAL_GENERATION
    assert commit_as(coordinator, "", -1, group_id="") is ErrorCode.INVALID_GROUP_ID


def test_members_of_consumer_groups_commit_at_their_epoch_only() -> None:
    coordinator = Coordinator(topics=TopicsImage.of([TopicImage(TOPIC, UUID(int=1), 4)]))
    join = ConsumerGroupHeartbeat(GROUP, "m", 0, "c", "/h", rebalance_timeout_ms=1_000, topic_names=[TOPIC], owned=[])
    epoch = coordinator.ask(join).of(ConsumerGroupHeartbeatReply).member_epoch
    assert commit_as(coordinator, "m", epoch) is ErrorCode.NONE
    assert commit_as(coordinator, "m", epoch + 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit_as(coordinator, "stranger", epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_as(coordinator, "", -1) is ErrorCode.NONE
    coordinator.end(FIRST)
    assert coordinator.committed() == {PLACE: 9}


def test_transaction_restores_nothing_in_a_group_that_was_deleted_meanwhile(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5})
    coordinator.commit({0: 9, 1: 9}, producer_id=FIRST)
    assert coordinator.delete() is ErrorCode.NONE
    assert coordinator.state() == "Dead"
    coordinator.end(FIRST)
    assert coordinator.state() == "Dead"
    assert coordinator.offset_bytes.held_bytes == 0


def test_deleted_offset_is_not_restored_by_a_transaction(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9, 1: 9}, producer_id=FIRST)
    coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, [0])]))
    coordinator.end(FIRST)
    assert coordinator.stable() == {(TOPIC, 1): 9}


def test_offsets_of_a_deleted_topic_are_not_restored_by_a_transaction() -> None:
    image = TopicsImage.of([TopicImage(TOPIC, UUID(int=1), 4), TopicImage("other", UUID(int=2), 4)])
    coordinator = Coordinator(topics=image)
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.commit({0: 9}, topic="other", producer_id=FIRST)
    coordinator.shard.on_topics_changed(TopicsImage.of([TopicImage("other", UUID(int=2), 4)]), coordinator.now)
    coordinator.pass_ms(1)
    coordinator.end(FIRST)
    assert coordinator.stable() == {("other", 0): 9}


def test_offset_that_a_transaction_may_set_does_not_expire() -> None:
    coordinator = Coordinator(
        GroupSettings(offsets_retention_ms=10 * MINUTE_MS, offsets_retention_check_interval_ms=MINUTE_MS)
    )
    coordinator.commit({0: 5, 1: 5})
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.pass_ms(20 * MINUTE_MS)
    assert coordinator.stable() == {PLACE: UNSTABLE}
    assert coordinator.committed() == {PLACE: 5}
    coordinator.end(FIRST, commits=False)
    coordinator.pass_ms(2 * MINUTE_MS)
    assert coordinator.state() == "Dead"


def test_group_with_nothing_but_a_pending_offset_stays_when_others_expire() -> None:
    coordinator = Coordinator(GroupSettings(offsets_retention_check_interval_ms=MINUTE_MS))
    (joined,) = coordinator.stable_group(1)
    coordinator.commit({0: 9}, joined, producer_id=FIRST)
    coordinator.leave((joined.member_id, None))
    coordinator.pass_ms(2 * MINUTE_MS)
    assert coordinator.state() == "Empty"
    coordinator.end(FIRST)
    assert coordinator.committed() == {PLACE: 9}


def test_pending_offsets_survive_a_restart_and_are_decided_by_their_markers(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5, 1: 5})
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.commit({1: 9, 2: 9}, producer_id=SECOND)
    coordinator.end(FIRST)
    coordinator.restart()
    assert coordinator.stable() == {PLACE: 9, (TOPIC, 1): UNSTABLE, (TOPIC, 2): UNSTABLE}
    coordinator.end(SECOND)
    assert coordinator.stable() == {PLACE: 9, (TOPIC, 1): 9, (TOPIC, 2): 9}


def test_group_with_pending_offsets_only_exists_after_a_restart(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, producer_id=FIRST)
    coordinator.restart()
    assert coordinator.state() == "Empty"


def test_record_of_another_kind_in_a_transaction_applies_at_once(coordinator: Coordinator) -> None:
    """Apache Kafka writes none; its coordinator applies them, too."""
    coordinator.commit({0: 5})
    coordinator.shard.replay(offset_key(offset_key_prefix(GROUP, TOPIC), 0), None, FIRST)
    assert coordinator.state() == "Dead"


def test_key_of_the_first_version_is_the_same_offset(coordinator: Coordinator) -> None:
    key = offset_key(offset_key_prefix(GROUP, TOPIC), 0)
    value = offset_value(OffsetToCommit(TOPIC, 0, 9, -1, ""), START_WALL_MS, None)
    coordinator.shard.replay(b"\0\0" + key[2:], value, FIRST)
    coordinator.commit({0: 3})
    coordinator.end(FIRST)
    assert coordinator.stable() == {PLACE: 3}


def test_pending_offsets_count_and_free_their_memory(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5})
    before_bytes = coordinator.offset_bytes.held_bytes
    coordinator.commit({0: 9}, producer_id=FIRST)
    assert coordinator.offset_bytes.held_bytes > before_bytes
    coordinator.commit({0: 10}, producer_id=FIRST)
    coordinator.end(FIRST)
    assert coordinator.offset_bytes.held_bytes == before_bytes
    assert coordinator.offset_bytes.held_by("127.0.0.1") == before_bytes


def test_offset_that_takes_effect_counts_for_the_client_that_committed_it(coordinator: Coordinator) -> None:
    coordinator.commit({0: 9}, host="/192.0.2.1", producer_id=FIRST)
    coordinator.end(FIRST)
    assert coordinator.offset_bytes.held_by("192.0.2.1") == coordinator.offset_bytes.held_bytes > 0


def test_full_memory_refuses_new_offsets_but_known_ones_are_committed_in_a_transaction(
    coordinator: Coordinator,
) -> None:
    coordinator.commit({0: 5})
    coordinator.offset_bytes.limit_bytes = 0
    assert coordinator.commit_errors({0: 9}, producer_id=FIRST) == {ErrorCode.NONE}
    assert coordinator.commit_errors({0: 10}, producer_id=FIRST) == {ErrorCode.NONE}
    no_room = {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert coordinator.commit_errors({0: 9}, producer_id=SECOND) == no_room
    assert coordinator.commit_errors({1: 9}, producer_id=FIRST) == no_room
    coordinator.offset_bytes.limit_bytes = OFFSET_BYTES_MAX
    assert coordinator.commit_errors({1: 9}, producer_id=FIRST) == {ErrorCode.NONE}


def test_any_order_of_records_and_markers_shows_the_last_record_that_counts() -> None:
    """As the log defines it: a record counts if it is in no transaction, or in one that has committed."""
    chance = random.Random(5)
    for _ in range(300):
        coordinator = Coordinator()
        # Offset (None for a deletion), and the transaction: its place in `outcomes`, or None.
        records: list[tuple[int, int | None, int | None]] = []
        outcomes: list[bool | None] = [None, None]
        current = {FIRST: 0, SECOND: 1}
        for number in range(chance.randint(3, 25)):
            partition, producer_id = chance.randrange(2), chance.choice((FIRST, SECOND))
            kind = chance.choice(("plain", "pending", "pending", "delete", "end", "restart"))
            if kind == "plain":
                coordinator.commit({partition: number})
                records.append((partition, number, None))
            elif kind == "pending":
                coordinator.commit({partition: number}, producer_id=producer_id)
                records.append((partition, number, current[producer_id]))
            elif kind == "delete":
                coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, [partition])]))
                records.append((partition, None, None))
            elif kind == "end":
                commits = chance.random() < 0.6
                coordinator.end(producer_id, commits=commits)
                outcomes[current[producer_id]] = commits
                current[producer_id] = len(outcomes)
                outcomes.append(None)
            else:
                coordinator.restart()
            coordinator.shard.assert_sound()
            shown = {}
            for partition, offset, transaction in records:
                if transaction is None or outcomes[transaction]:
                    shown[TOPIC, partition] = offset
            assert coordinator.committed() == {place: offset for place, offset in shown.items() if offset is not None}

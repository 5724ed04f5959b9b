from __future__ import annotations

import pytest

from ottla.groups.commands import CommitOffsets, DeleteOffsets, JoinProtocol, OffsetToCommit, TopicPartitions
from ottla.groups.offset_requests import TOMBSTONES_PER_BATCH
from ottla.groups.replies import CommitReply, CommittedOffset, DeleteOffsetsReply, FetchReply, TopicErrors, TopicOffsets
from ottla.groups.settings import GroupSettings
from ottla.groups.subscription import subscribed_topics
from ottla.model.error_code import ErrorCode
from tests.unit.groups.coordinator import GROUP, TOPIC, Coordinator

SUBSCRIBES_TO_ORDERS = (JoinProtocol("range", bytes.fromhex("0000 00000001 0006") + b"orders"),)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_committed_offset_is_returned_with_its_epoch_and_metadata(coordinator: Coordinator) -> None:
    coordinator.commit({2: 44}, metadata="café")
    reply = coordinator.ask_committed(topics=[TopicPartitions(TOPIC, [2, 3]), TopicPartitions("none", [0])])
    assert reply.of(FetchReply).topics == [
        TopicOffsets(TOPIC, [CommittedOffset(2, 44, 7, "café"), CommittedOffset(3)]),
        TopicOffsets("none", [CommittedOffset(0)]),
    ]


def test_group_that_is_not_there_has_committed_nothing_which_is_no_error(coordinator: Coordinator) -> None:
    asked = coordinator.ask_committed("nobody", [TopicPartitions(TOPIC, [0])])
    assert asked.of(FetchReply) == FetchReply(ErrorCode.NONE, [TopicOffsets(TOPIC, [CommittedOffset(0)])])
    assert coordinator.ask_committed("nobody").of(FetchReply) == FetchReply(ErrorCode.NONE, [])


def test_simple_consumer_makes_an_empty_group_without_a_type(coordinator: Coordinator) -> None:
    assert coordinator.commit_errors({0: 5}) == {ErrorCode.NONE}
    assert coordinator.describe()[2:4] == ("Empty", "")
    assert coordinator.committed() == {(TOPIC, 0): 5}


def test_simple_consumer_may_not_commit_while_the_group_has_members(coordinator: Coordinator) -> None:
    coordinator.stable_group(1)
    assert coordinator.commit_errors({0: 5}) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert coordinator.committed() == {}


def test_member_commits_in_its_generation_only(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    assert coordinator.commit_errors({0: 5}, joined) == {ErrorCode.NONE}
    old = joined._replace(generation=joined.generation - 1)
    assert coordinator.commit_errors({0: 1}, old) == {ErrorCode.ILLEGAL_GENERATION}
    stranger = joined._replace(member_id="stranger")
    assert coordinator.commit_errors({0: 1}, stranger) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert coordinator.committed() == {(TOPIC, 0): 5}


def test_member_may_commit_while_others_join_but_not_before_it_has_its_assignment(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1)
    newcomer = coordinator.ask_join()
    assert coordinator.state() == "PreparingRebalance"
    assert coordinator.commit_errors({0: 5}, joined) == {ErrorCode.NONE}
    again = coordinator.ask_join(joined.member_id).reply
    assert not newcomer.waits
    assert coordinator.state() == "CompletingRebalance"
    assert coordinator.commit_errors({0: 6}, again) == {ErrorCode.REBALANCE_IN_PROGRESS}


def test_commit_keeps_the_session_alive(coordinator: Coordinator) -> None:
    (joined,) = coordinator.stable_group(1, session_timeout_ms=10_000)
    for offset in range(4):
        coordinator.pass_ms(6_000)
        assert coordinator.commit_errors({0: offset}, joined) == {ErrorCode.NONE}
    coordinator.pass_ms(10_000)
    assert coordinator.state() == "Empty"


@pytest.mark.parametrize(
    ("knows_stale_epoch", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_member_of_a_group_that_is_gone_gets_the_error_of_its_version(
    coordinator: Coordinator, knows_stale_epoch: bool, error: ErrorCode
) -> None:
    offsets = [OffsetToCommit(TOPIC, 0, 1, -1, "")]
    asked = coordinator.ask(CommitOffsets("gone", "m", None, 3, offsets, knows_stale_epoch=knows_stale_epoch))
    assert asked.of(CommitReply).errors == (error,)
    assert coordinator.state("gone") == "Dead"


def test_too_much_metadata_is_refused_for_its_partition_only(coordinator: Coordinator) -> None:
    offsets = [
        OffsetToCommit(TOPIC, 0, 1, -1, "x" * 4_096),
        OffsetToCommit(TOPIC, 1, 1, -1, "x" * 4_097),
        OffsetToCommit(TOPIC, 2, 1, -1, "ü" * 2_049),
    ]
    asked = coordinator.ask(CommitOffsets(GROUP, "", None, -1, offsets))
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert asked.of(CommitReply).errors == [ErrorCode.NONE, too_large, too_large]
    assert coordinator.committed() == {(TOPIC, 0): 1}


def test_metadata_never_exceeds_what_the_format_can_hold() -> None:
    coordinator = Coordinator(GroupSettings(offset_metadata_max_bytes=100_000))
    assert coordinator.commit_errors({0: 1}, metadata="x" * 32_768) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert coordinator.commit_errors({0: 1}, metadata="x" * 32_767) == {ErrorCode.NONE}


def test_commit_without_an_expiry_is_kept(coordinator: Coordinator) -> None:
    assert coordinator.commit_errors({0: 5}, retention_ms=2**63 - 1) == {ErrorCode.NONE}
    coordinator.pass_ms(20 * 24 * 3_600_000)
    assert coordinator.committed() == {(TOPIC, 0): 5}


def test_commit_with_nothing_to_log_is_answered_at_once(coordinator: Coordinator) -> None:
    coordinator.log.holds_back = True
    assert coordinator.commit_errors({0: 1}, metadata="x" * 5_000) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert coordinator.state() == "Dead"


@pytest.mark.parametrize(
    ("refused_with", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_commit_that_the_log_refuses_changes_nothing(
    coordinator: Coordinator, refused_with: ErrorCode, told: ErrorCode
) -> None:
    coordinator.commit({0: 5})
    coordinator.log.refuses_with = refused_with
    assert coordinator.commit_errors({0: 6, 1: 1}) == {told}
    assert coordinator.committed() == {(TOPIC, 0): 5}


def test_commits_of_one_request_are_one_batch_and_survive_a_restart(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5, 1: 6, 7: 8}, metadata="note")
    assert [len(batch) for batch in coordinator.log.batches] == [3]
    coordinator.restart()
    assert coordinator.committed() == {(TOPIC, 0): 5, (TOPIC, 1): 6, (TOPIC, 7): 8}


def test_deleted_offsets_are_gone_and_a_simple_group_with_the_last_of_them(coordinator: Coordinator) -> None:
    coordinator.commit({0: 5, 1: 6})
    asked = coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, [0, 9])]))
    none = ErrorCode.NONE
    assert asked.of(DeleteOffsetsReply) == DeleteOffsetsReply(none, [TopicErrors(TOPIC, [(0, none), (9, none)])])
    assert coordinator.committed() == {(TOPIC, 1): 6}
    coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, [1])]))
    assert coordinator.state() == "Dead"
    coordinator.restart()
    assert coordinator.state() == "Dead"


def test_offsets_of_thousands_of_partitions_are_deleted_in_batches_that_the_log_takes(coordinator: Coordinator) -> None:
    partitions = range(2 * TOMBSTONES_PER_BATCH + 1)
    coordinator.commit(dict.fromkeys(partitions, 5))
    commits_count = len(coordinator.log.batches)
    asked = coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, list(partitions))]))
    assert {error for _, error in asked.of(DeleteOffsetsReply).topics[0].partitions} == {ErrorCode.NONE}
    assert coordinator.committed() == {}
    sizes = [len(batch) for batch in coordinator.log.batches[commits_count:]]
    assert sizes == [TOMBSTONES_PER_BATCH, TOMBSTONES_PER_BATCH, 1]


def test_offsets_of_a_topic_that_a_member_reads_are_not_deleted(coordinator: Coordinator) -> None:
    coordinator.stable_group(2, protocols=SUBSCRIBES_TO_ORDERS)
    asked = coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(TOPIC, [0]), TopicPartitions("other", [0])]))
    assert asked.of(DeleteOffsetsReply).topics == [
        TopicErrors(TOPIC, [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]),
        TopicErrors("other", [(0, ErrorCode.NONE)]),
    ]


def test_offsets_are_not_deleted_when_a_subscription_cannot_be_read(coordinator: Coordinator) -> None:
    coordinator.stable_group(1)
    asked = coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions("any", [0])]))
    assert asked.of(DeleteOffsetsReply).topics == [TopicErrors("any", [(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)])]


def test_deleting_offsets_of_many_topics_reads_each_subscription_once(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.stable_group(2, protocols=SUBSCRIBES_TO_ORDERS)
    read: list[bytes] = []

    def counted(subscription: bytes) -> frozenset[str] | None:
        read.append(subscription)
        return subscribed_topics(subscription)

    monkeypatch.setattr("ottla.groups.classic.group.subscribed_topics", counted)
    coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions(f"other-{number}", [0]) for number in range(100)]))
    assert len(read) == 2


def test_offsets_of_members_that_are_no_consumers_are_not_deleted(coordinator: Coordinator) -> None:
    coordinator.stable_group(1, protocol_type="connect")
    asked = coordinator.ask(DeleteOffsets(GROUP, [TopicPartitions("any", [0])]))
    assert asked.of(DeleteOffsetsReply) == DeleteOffsetsReply(ErrorCode.NON_EMPTY_GROUP)


def test_deleting_offsets_of_a_group_that_is_not_there_is_an_error(coordinator: Coordinator) -> None:
    asked = coordinator.ask(DeleteOffsets("nobody", [TopicPartitions(TOPIC, [0])]))
    assert asked.of(DeleteOffsetsReply) == DeleteOffsetsReply(ErrorCode.GROUP_ID_NOT_FOUND)

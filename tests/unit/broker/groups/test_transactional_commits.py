"""Offsets in transactions over real logs: the guard of their partition, markers, and what a load finds of them, also
after compaction."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest

from ottla.groups.commands import (
    CommitOffsets,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    TopicPartitions,
    TransactionalProducer,
)
from ottla.groups.replies import CommitReply, FetchReply
from ottla.model.error_code import ErrorCode
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.storage.compaction.cleaner import clean
from ottla.storage.log_config import LogConfig
from ottla.transactions.end_markers import EndMarkers
from tests.cleaning import run_clean
from tests.unit.broker.groups.small_coordinator import PARTITIONS, SmallCoordinator, commit

# Every clean sees each closed segment, and drops tombstones and markers soon.
COMPACTED: Final = LogConfig(
    flush_policy="ack",
    cleanup_policy="compact",
    segment_bytes=2_000,
    min_cleanable_dirty_ratio=0,
    delete_retention_ms=1_000,
)
GROUP: Final = "g7"
INDEX: Final = partition_of(GROUP, PARTITIONS)
PRODUCER_ID: Final = 11
UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def small() -> SmallCoordinator:
    made = SmallCoordinator()
    made.show_topics()
    return made


class Verification:
    """The query of the transaction's coordinator: the test answers it."""

    def __init__(self) -> None:
        self.partition: TopicPartition | None = None
        self.answer: Callable[[ErrorCode], None] | None = None

    def __call__(self, partition: TopicPartition, on_verified: Callable[[ErrorCode], None]) -> None:
        self.partition = partition
        self.answer = on_verified

    def reply(self, error: ErrorCode = ErrorCode.NONE) -> None:
        assert self.answer is not None
        self.answer(error)


def open_transaction(
    small: SmallCoordinator,
    verification: Verification,
    epoch: int = 0,
    group_id: str = GROUP,
    *,
    adds_partition: bool = False,
) -> list[TransactionalProducer | ErrorCode]:
    opened: list[TransactionalProducer | ErrorCode] = []
    producer = (PRODUCER_ID, epoch)
    small.coordinator.open_transaction(group_id, producer, verification, opened.append, adds_partition=adds_partition)
    return opened


def verified(small: SmallCoordinator, epoch: int = 0) -> TransactionalProducer:
    verification = Verification()
    opened = open_transaction(small, verification, epoch)
    if not opened:
        verification.reply()
    (producer,) = opened
    assert isinstance(producer, TransactionalProducer)
    return producer


def commit_in(small: SmallCoordinator, producer: TransactionalProducer, offset: int) -> list[CommitReply]:
    offsets = [OffsetToCommit("t", 0, offset, -1, "")]
    return small.ask(CommitOffsets(GROUP, "", None, -1, offsets, producer=producer))


def end(small: SmallCoordinator, *, commits: bool = True, epoch: int = 1) -> list[ErrorCode]:
    """The marker, in the epoch after that of the records."""
    done: list[ErrorCode] = []
    markers = EndMarkers("tx", PRODUCER_ID, epoch, commits, True, 3, frozenset())
    small.coordinator.write_marker(INDEX, markers, done.append)
    return done


def shown(small: SmallCoordinator, *, requires_stable: bool = False) -> int | ErrorCode | None:
    """The offset that is committed, once all is flushed."""
    replies: list[FetchReply] = small.ask(FetchOffsets(GROUP, None, requires_stable=requires_stable))
    small.flush()
    (reply,) = replies
    assert reply.error is ErrorCode.NONE
    found = [each for topic in reply.topics for each in topic.partitions]
    return (found[0].error or found[0].offset) if found else None


def test_offsets_of_a_verified_transaction_take_effect_with_its_marker(small: SmallCoordinator) -> None:
    verification = Verification()
    opened = open_transaction(small, verification)
    assert verification.partition == TopicPartition(OFFSETS_TOPIC, INDEX)
    assert opened == []
    verification.reply()
    (producer,) = opened
    assert isinstance(producer, TransactionalProducer)
    committed = commit_in(small, producer, 9)
    assert committed == []
    small.flush()
    assert committed[0].errors == [ErrorCode.NONE]
    assert shown(small, requires_stable=True) is UNSTABLE
    assert shown(small) is None
    done = end(small)
    assert done == []
    small.flush()
    assert done == [ErrorCode.NONE]
    assert shown(small, requires_stable=True) == 9


def test_aborted_offsets_are_never_shown(small: SmallCoordinator) -> None:
    small.ask(commit(GROUP, 4))
    commit_in(small, verified(small), 9)
    end(small, commits=False)
    assert shown(small, requires_stable=True) == 4


def test_partition_with_the_open_transaction_is_verified_once(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    verification = Verification()
    (producer,) = open_transaction(small, verification)
    assert producer == TransactionalProducer(PRODUCER_ID, 0)
    assert verification.partition is None
    commit_in(small, producer, 10)
    end(small)
    assert shown(small) == 10


def test_offsets_that_waited_for_the_marker_of_the_last_transaction_are_verified_again(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    verification = Verification()
    opened = open_transaction(small, verification, epoch=1, adds_partition=True)
    end(small, epoch=1)
    verification.reply()
    assert opened == []
    verification.reply()
    (producer,) = opened
    assert isinstance(producer, TransactionalProducer)
    commit_in(small, producer, 10)
    end(small, epoch=2)
    assert shown(small, requires_stable=True) == 10


def test_refused_verification_leaves_nothing_behind(small: SmallCoordinator) -> None:
    verification = Verification()
    opened = open_transaction(small, verification)
    verification.reply(ErrorCode.INVALID_TXN_STATE)
    assert opened == [ErrorCode.INVALID_TXN_STATE]
    commit_in(small, verified(small), 9)
    end(small)
    assert shown(small) == 9


def test_marker_between_the_answer_and_the_append_refuses_the_offsets(small: SmallCoordinator) -> None:
    producer = verified(small)
    end(small)
    small.flush()
    refused = commit_in(small, producer, 9)
    assert refused[0].errors[0] in {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert shown(small) is None


def test_producer_of_an_earlier_epoch_is_refused_at_once(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    end(small)
    assert open_transaction(small, Verification()) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_answer_for_a_shard_that_was_replaced_meanwhile_opens_nothing(small: SmallCoordinator) -> None:
    verification = Verification()
    opened = open_transaction(small, verification)
    small.retire(INDEX)
    small.show_topics()
    verification.reply()
    assert opened == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("group_id", ["", "x" * 40_000])
def test_invalid_group_is_refused_before_any_query(small: SmallCoordinator, group_id: str) -> None:
    verification = Verification()
    assert open_transaction(small, verification, group_id=group_id) == [ErrorCode.INVALID_GROUP_ID]
    assert verification.partition is None


def test_load_finds_what_is_pending_and_what_markers_have_decided(small: SmallCoordinator) -> None:
    small.ask(commit(GROUP, 4))
    commit_in(small, verified(small), 9)
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    small.loop.turn()
    assert shown(small, requires_stable=True) is UNSTABLE
    assert shown(small) == 4
    end(small)
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    small.loop.turn()
    assert shown(small, requires_stable=True) == 9


def test_aborted_offsets_are_gone_after_a_load(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    end(small, commits=False)
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    small.loop.turn()
    assert shown(small, requires_stable=True) is None


def test_marker_is_refused_while_the_shard_loads_and_comes_again(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    small.flush()
    small.crash()
    small.start()
    small.show_topics()
    assert end(small) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    small.loop.turn()
    done = end(small)
    small.flush()
    assert done == [ErrorCode.NONE]
    assert shown(small) == 9


def test_marker_for_a_partition_that_is_led_elsewhere_is_refused(small: SmallCoordinator) -> None:
    small.retire(INDEX)
    small.show_topics()
    assert end(small) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_marker_that_waits_when_its_partition_leaves_is_refused(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    done = end(small)
    small.retire(INDEX)
    small.show_topics()
    assert done == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_marker_of_a_replaced_coordinator_is_refused(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    end(small)
    done: list[ErrorCode] = []
    older = EndMarkers("tx", PRODUCER_ID, 2, True, True, 2, frozenset())
    small.coordinator.write_marker(INDEX, older, done.append)
    small.flush()
    assert done == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def test_repeated_marker_is_acknowledged_and_not_written_again(small: SmallCoordinator) -> None:
    commit_in(small, verified(small), 9)
    end(small)
    small.flush()
    log = small.directory.logs[TopicPartition(OFFSETS_TOPIC, INDEX)]
    before = log.log_end_offset
    assert end(small) == [ErrorCode.NONE]
    assert log.log_end_offset == before


class RandomCommits:
    """Commits, transactions and deletions over a log that is compacted and loaded again, and what the log defines."""

    PRODUCERS: Final = (21, 22)

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.small = SmallCoordinator(log_config=COMPACTED)
        self.small.show_topics()
        self.cleans_count = 0
        self._epochs = dict.fromkeys(self.PRODUCERS, 0)
        # In the order of the log: the partition, its offset or None for a deletion, and its transaction, if any.
        self._records: list[tuple[int, int | None, tuple[int, int] | None]] = []
        self._committed: set[tuple[int, int]] = set()

    def commit(self, number: int) -> None:
        partition = self.chance.randrange(2)
        self.small.ask(commit(GROUP, number, partition=partition))
        self._records.append((partition, number, None))

    def commit_in_transaction(self, number: int) -> None:
        partition, producer_id = self.chance.randrange(2), self.chance.choice(self.PRODUCERS)
        producer = (producer_id, self._epochs[producer_id])
        opened: list[TransactionalProducer | ErrorCode] = []
        self.small.coordinator.open_transaction(
            GROUP, producer, lambda partition, on_verified: on_verified(ErrorCode.NONE), opened.append
        )
        (found,) = opened
        assert isinstance(found, TransactionalProducer)
        offsets = [OffsetToCommit("t", partition, number, -1, "")]
        self.small.ask(CommitOffsets(GROUP, "", None, -1, offsets, producer=found))
        self._records.append((partition, number, producer))

    def end(self, number: int) -> None:
        producer_id, commits = self.chance.choice(self.PRODUCERS), self.chance.random() < 0.6
        if commits:
            self._committed.add((producer_id, self._epochs[producer_id]))
        self._epochs[producer_id] += 1
        markers = EndMarkers("tx", producer_id, self._epochs[producer_id], commits, True, 0, frozenset())
        done: list[ErrorCode] = []
        self.small.coordinator.write_marker(INDEX, markers, done.append)
        self.small.flush()
        assert done == [ErrorCode.NONE]

    def delete(self, number: int) -> None:
        partition = self.chance.randrange(2)
        self.small.ask(DeleteOffsets(GROUP, [TopicPartitions("t", [partition])]))
        self._records.append((partition, None, None))

    def clean(self, number: int) -> None:
        directory, now_ms = self.small.directory, self.small.clock.now_ms()
        directory.logs[TopicPartition(OFFSETS_TOPIC, INDEX)].roll(now_ms)
        self.small.flush()
        self.small.clock.advance(self.chance.choice((0, 5_000)))
        job = directory.compactor.next_job(self.small.clock.now_ms(), 10_000)
        if job is not None:
            self.cleans_count += 1
            run_clean(directory.compactor, job, lambda each: clean(self.small.disk, each, lambda _: None))
            assert not directory.compactor.has_failed_last

    def load(self, number: int) -> None:
        self.small.flush()
        self.small.crash()
        self.small.start()
        self.small.show_topics()
        self.small.loop.turn()

    def check(self) -> None:
        replies: list[FetchReply] = self.small.ask(FetchOffsets(GROUP, None))
        self.small.flush()
        expected = {partition: offset for partition, offset, of in self._records if of is None or of in self._committed}
        found = {each.partition: each.offset for topic in replies[0].topics for each in topic.partitions}
        assert found == {partition: offset for partition, offset in expected.items() if offset is not None}


@pytest.mark.parametrize("seed", range(4))
def test_load_of_a_compacted_log_finds_the_same_offsets(seed: int) -> None:
    run = RandomCommits(seed)
    kinds = (run.commit, run.commit_in_transaction, run.end, run.end, run.delete, run.clean, run.load)
    for number in range(300):
        run.chance.choice(kinds)(number)
        run.check()
    # A clean ends below the first open transaction.
    assert run.cleans_count > 5

"""The copier with transactions whose ends keep the producer's epoch, on brokers in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import Mock, patch

import pytest

from ottla.client.wire.errors import CallTimedOut
from ottla.mirror import fenced_mirror
from ottla.mirror.copier import Copier
from ottla.mirror.copy_transactions import TIMEOUT_MS, CopyTransactions
from ottla.mirror.fenced_mirror import FencedMirror
from ottla.mirror.journal import Counts, MirrorJournal, SourcePartition, progress_entries
from ottla.mirror.mirrored_cluster import MirroredCluster
from ottla.mirror.offset_translation import OffsetTranslation
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import PartitionCopy
from ottla.mirror.plan import NO_ID
from ottla.mirror.progress_topic import PROGRESS_PARTITION, JournalWriter, LeaseLapsed
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.protocol.api import API_VERSIONS, ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeCluster, FakePartition, Fault
from tests.unit.client.fake_transactions import FakeTransactions

# No commit is due within a test.
SELDOM = MirrorOptions(is_transactional=True, progress_interval_ms=20_000, in_flight_bytes_max=300 * KIB)
OFTEN = MirrorOptions(is_transactional=True, progress_interval_ms=1)


class TransactionalTarget:
    """A topic of two partitions on both clusters; the first progress of each is stored."""

    def __init__(self, batches_count: int, value_bytes: int = 10) -> None:
        self.source, self.target = FakeCluster(), FakeCluster()
        self.target.clock = self.source.clock
        self.partitions = self.source.add_topic("t", 1, 1)
        self.target.add_topic("t", 1, 1)
        self.target.add_topic(PROGRESS_PARTITION.topic, 1)
        self.transactions = FakeTransactions(self.target, is_implicit=False)
        for api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            self.target.brokers[1].versions[api] = API_VERSIONS[api]
        self.journal = MirrorJournal()
        self.notes: list[str] = []
        for partition in self.partitions:
            for number in range(batches_count):
                self.source.partitions[partition].append(a_batch(b"%d" % number, value_bytes))

    @contextmanager
    def copier(self, options: MirrorOptions, failures_max: int | None = None) -> Iterator[Copier]:
        copies = []
        for each in self.partitions:
            source = SourcePartition("c", NO_ID, "t", each.partition)
            copy = PartitionCopy(source, NO_ID, OffsetTranslation(0, 0), Counts())
            for key, value in progress_entries(source, copy.progress(0), copy.offsets, self.journal):
                self.journal.apply(key, value)
            copies.append(copy)
        with (
            self.source.client() as here,
            self.target.client() as there,
            JournalWriter(there, self.journal) as writer,
            Copier(
                here,
                there,
                writer,
                options,
                note=self.notes.append,
                failures_max=failures_max,
                transactions=CopyTransactions(there, "c", 32 * MIB, lambda: True),
            ) as copier,
        ):
            copier.assign(copies, {each: self.source.partitions[each].end for each in self.partitions})
            yield copier

    def is_copied(self, partition: TopicPartition) -> bool:
        return self.transactions.visible(partition) == [
            record.value for record in self.source.partitions[partition].records()
        ]

    def stored_end(self, partition: TopicPartition) -> int:
        """Of the source's offsets, by the stored progress."""
        return self.journal.progress[SourcePartition("c", NO_ID, "t", partition.partition)].source_end

    def refuse(self, api: ApiKey, partition: TopicPartition, code: ErrorCode | None) -> None:
        self.target.brokers[1].error_of = lambda asked, where: code if (asked, where) == (api, partition) else None


def a_batch(value: bytes, value_bytes: int = 10) -> bytearray:
    return build_batch([Record(0, 1000, None, b"%s-%d" % (value, at) + b"x" * value_bytes) for at in range(2)])


def turn_until(is_done: Callable[[], bool], copier: Copier, turns: int = 500) -> None:
    for _ in range(turns):
        if is_done():
            return
        copier.turn()
    raise AssertionError([(copy.phase, copy.problem, copy.lag_offsets) for copy in copier.copies.values()])


def test_partition_that_is_given_up_does_not_keep_progress_that_was_rolled_back() -> None:
    clusters = TransactionalTarget(4, value_bytes=40_000)
    damaged, other = clusters.partitions
    batch = a_batch(b"damaged", 40_000)
    batch[-1] ^= 1
    clusters.source.partitions[damaged].append(batch)
    with clusters.copier(SELDOM) as copier:
        turn_until(lambda: copier.is_finished, copier)
        before = copier.copies[damaged]
        assert before.is_final
        assert before.offsets.source_end > 0, "its batches are in the open transaction"
        clusters.refuse(ApiKey.PRODUCE, PROGRESS_PARTITION, ErrorCode.MESSAGE_TOO_LARGE)
        clusters.target.clock.advance(SELDOM.progress_interval_ms)
        copier.turn()
        assert "a transaction was aborted" in clusters.notes[-1]
        clusters.refuse(ApiKey.PRODUCE, PROGRESS_PARTITION, None)
        turn_until(lambda: copier.is_finished, copier)
        copier.drain()
        after = copier.copies[damaged]
        assert (after.is_final, after.problem) == (True, before.problem)
    assert clusters.is_copied(other)
    assert clusters.transactions.visible(damaged) == []
    assert (clusters.stored_end(damaged), clusters.stored_end(other)) == (0, 8)


def test_marker_that_is_written_twice_stops_no_partition() -> None:
    clusters = TransactionalTarget(6, value_bytes=40_000)
    append = FakePartition.append_marker

    def append_twice(partition: FakePartition, batch: bytearray) -> None:
        append(partition, bytearray(batch))
        append(partition, bytearray(batch))

    with (
        patch.object(FakePartition, "append_marker", append_twice),
        clusters.copier(SELDOM) as copier,
    ):
        for _ in range(16):
            copier.turn()
            clusters.target.clock.advance(SELDOM.progress_interval_ms)
        assert copier.is_finished
        copier.drain()
        assert clusters.target.partitions[clusters.partitions[0]].end > 12 + 4, "several transactions, two markers each"
        for copy in copier.copies.values():
            assert (copy.problem, copy.counts.foreign_records, copy.counts.duplicate_records) == (None, 0, 0)
    assert all(clusters.is_copied(each) for each in clusters.partitions)


def test_partition_that_cannot_be_added_to_a_transaction_is_given_up_and_holds_no_other_up() -> None:
    clusters = TransactionalTarget(3)
    refused, free = clusters.partitions
    clusters.refuse(ApiKey.ADD_PARTITIONS_TO_TXN, refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with clusters.copier(OFTEN, failures_max=3) as copier:
        turn_until(lambda: copier.is_finished, copier)
        copier.drain()
        assert "TOPIC_AUTHORIZATION_FAILED" in str(copier.copies[refused].problem)
        assert copier.copies[free].problem is None
    assert clusters.is_copied(free)


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN])
def test_copies_whose_progress_is_refused_again_and_again_are_given_up_where_a_caller_waits(api: ApiKey) -> None:
    clusters = TransactionalTarget(3)
    clusters.refuse(api, PROGRESS_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with clusters.copier(OFTEN, failures_max=3) as copier:
        turn_until(lambda: all(copy.is_final for copy in copier.copies.values()), copier)
        copier.drain()
        assert all("TOPIC_AUTHORIZATION_FAILED" in str(copy.problem) for copy in copier.copies.values())
    aborts = [each for each in clusters.notes if "a transaction was aborted" in each]
    assert len(aborts) == 3
    assert aborts[-1].endswith("; nothing is copied any further")


def test_copies_whose_progress_was_refused_for_a_while_continue() -> None:
    clusters = TransactionalTarget(3)
    clusters.refuse(ApiKey.PRODUCE, PROGRESS_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with clusters.copier(OFTEN) as copier:
        turn_until(lambda: sum("a transaction was aborted" in each for each in clusters.notes) > 3, copier)
        clusters.refuse(ApiKey.PRODUCE, PROGRESS_PARTITION, None)
        turn_until(lambda: copier.is_finished, copier)
        copier.drain()
    assert all(clusters.is_copied(each) for each in clusters.partitions)


def test_batch_that_is_not_stored_aborts_the_transaction_before_its_coordinator_does() -> None:
    clusters = TransactionalTarget(3)
    clusters.refuse(ApiKey.PRODUCE, clusters.partitions[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    with clusters.copier(SELDOM) as copier:
        begun_ms = clusters.target.clock.monotonic_ms()
        turn_until(lambda: copier.copies[clusters.partitions[0]].problem is not None, copier, 5_000)
        assert clusters.target.clock.monotonic_ms() - begun_ms < TIMEOUT_MS
        assert "the target did not take it" in str(copier.copies[clusters.partitions[0]].problem)


def test_markers_that_do_not_come_end_the_term_and_not_the_mirror() -> None:
    clusters = TransactionalTarget(0)
    with clusters.target.client() as there:
        transactions = CopyTransactions(there, "c", 32 * MIB, lambda: True)
        transactions.send(clusters.partitions[0], a_batch(b"one"), None)
        transactions.commit([])
        clusters.target.brokers[1].fault_of = lambda api: Fault.SILENCE if api is ApiKey.INIT_PRODUCER_ID else None
        with pytest.raises(LeaseLapsed) as raised:
            transactions.wait_markers()
        assert raised.value.__cause__ is not None, "it is more than a lapse"
        transactions.close()


def test_mirror_that_cannot_read_its_journal_closes_its_transactions() -> None:
    clusters = TransactionalTarget(0)
    transactions = Mock(spec=CopyTransactions)
    with (
        clusters.source.client() as here,
        clusters.target.client() as there,
        patch.object(FencedMirror, "_new_transactions", return_value=transactions),
        patch.object(fenced_mirror, "read_journal", side_effect=CallTimedOut("no answer")),
        pytest.raises(CallTimedOut),
    ):
        FencedMirror(
            MirroredCluster(here),
            MirroredCluster(there),
            OFTEN,
            ends_here=True,
            may_write=lambda: True,
            note=clusters.notes.append,
            failures_max=None,
        )
    transactions.close.assert_called_once_with()

"""The copier on brokers in memory, whose network and answers go wrong as a test wants it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from ottla.mirror import audit_commits
from ottla.mirror.audit_commits import WINDOW_MS, AuditState, CopyCounts
from ottla.mirror.copier import Copier
from ottla.mirror.journal import Counts, MirrorJournal, SourcePartition
from ottla.mirror.offset_translation import OffsetTranslation
from ottla.mirror.options import MirrorOptions
from ottla.mirror.partition_copy import PartitionCopy
from ottla.mirror.plan import NO_ID
from ottla.mirror.progress_topic import PROGRESS_PARTITION, JournalNotWritten, JournalWriter
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB
from ottla.protocol.api import ApiKey
from ottla.records.builder import build_batch
from ottla.records.record import Record
from tests.unit.client.fake_cluster import FakeCluster, Fault, script


class TwoClusters:
    """A topic of two partitions with batches on the source, and an empty one on the target."""

    def __init__(self, batches_count: int, value_bytes: int = 10) -> None:
        self.source, self.target = FakeCluster(), FakeCluster()
        self.target.clock = self.source.clock
        self.partitions = self.source.add_topic("t", 1, 1)
        self.target.add_topic("t", 1, 1)
        self.target.add_topic(PROGRESS_PARTITION.topic, 1)
        for partition in self.partitions:
            for number in range(batches_count):
                rows = [Record(0, 1000, None, b"%d-%d" % (number, at) + b"x" * value_bytes) for at in range(2)]
                self.source.partitions[partition].append(build_batch(rows))

    @contextmanager
    def copier(
        self,
        options: MirrorOptions | None = None,
        failures_max: int | None = None,
        *,
        tells_audit: bool = False,
        may_write: Callable[[], bool] = lambda: True,
    ) -> Iterator[Copier]:
        options = options or MirrorOptions()
        with (
            self.source.client() as here,
            self.target.client() as there,
            JournalWriter(there, MirrorJournal()) as writer,
            Copier(here, there, writer, options, failures_max=failures_max, may_write=may_write) as copier,
        ):
            copies = [
                PartitionCopy(
                    SourcePartition("c", NO_ID, "t", each.partition),
                    NO_ID,
                    OffsetTranslation(0, 0),
                    Counts(),
                    CopyCounts(AuditState(0)) if tells_audit else None,
                )
                for each in self.partitions
            ]
            copier.assign(copies, {each: self.source.partitions[each].end for each in self.partitions})
            yield copier

    def is_copied(self, partition: TopicPartition) -> bool:
        return self.values(self.target, partition) == self.values(self.source, partition)

    @staticmethod
    def values(cluster: FakeCluster, partition: TopicPartition) -> list[bytes | None]:
        return [record.value for record in cluster.partitions[partition].records()]


def turn_until_finished(copier: Copier, turns: int = 500) -> None:
    for _ in range(turns):
        if copier.is_finished:
            return
        copier.turn()
    raise AssertionError([(copy.phase, copy.problem, copy.lag_offsets) for copy in copier.copies.values()])


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SILENCE])
@pytest.mark.parametrize("hit", range(0, 24, 3))
def test_lost_request_to_the_target_costs_no_record_and_doubles_none(fault: Fault, hit: int) -> None:
    clusters = TwoClusters(20)
    with clusters.copier() as copier:
        clusters.target.brokers[1].fault_of = script(*[None] * hit, fault)
        turn_until_finished(copier)
        assert all(clusters.is_copied(each) for each in clusters.partitions)
        assert all(copy.counts.duplicate_records == 0 for copy in copier.copies.values())


@pytest.mark.parametrize("hit", range(6))
def test_lost_request_to_the_source_costs_nothing(hit: int) -> None:
    clusters = TwoClusters(20)
    with clusters.copier() as copier:
        clusters.source.brokers[1].fault_of = script(*[None] * hit, Fault.CUT_AFTER)
        turn_until_finished(copier)
    assert all(clusters.is_copied(each) for each in clusters.partitions)


def test_partition_that_the_target_does_not_take_holds_no_other_up() -> None:
    clusters = TwoClusters(200, value_bytes=2000)
    stuck, free = clusters.partitions

    def refuse(api: ApiKey, partition: TopicPartition) -> ErrorCode | None:
        return ErrorCode.NOT_ENOUGH_REPLICAS if api is ApiKey.PRODUCE and partition == stuck else None

    clusters.target.brokers[1].error_of = refuse
    with clusters.copier(MirrorOptions(in_flight_bytes_max=300 * KIB)) as copier:
        begun_ms = clusters.target.clock.monotonic_ms()
        while not clusters.is_copied(free):
            copier.turn()
            assert clusters.target.clock.monotonic_ms() - begun_ms < 60_000, "before the stuck batches are given up"
        assert not clusters.values(clusters.target, stuck)
        clusters.target.brokers[1].error_of = lambda api, partition: None
        turn_until_finished(copier)
    assert clusters.is_copied(stuck)


def test_partition_that_is_refused_for_good_is_given_up_where_a_caller_waits() -> None:
    clusters = TwoClusters(5)
    refused, free = clusters.partitions
    clusters.target.brokers[1].error_of = lambda api, partition: (
        ErrorCode.MESSAGE_TOO_LARGE if api is ApiKey.PRODUCE and partition == refused else None
    )
    with clusters.copier(failures_max=3) as copier:
        turn_until_finished(copier)
        assert "did not take it" in str(copier.copies[refused].problem)
    assert clusters.is_copied(free)
    assert clusters.values(clusters.target, refused) == []


def test_partition_with_very_many_windows_waits_until_its_counts_are_published() -> None:
    clusters = TwoClusters(0)
    many, few = clusters.partitions
    for number in range(60):
        rows = [Record(0, number * WINDOW_MS, None, b"x" * 50_000)]
        clusters.source.partitions[many].append(build_batch(rows))
    clusters.source.partitions[few].append(build_batch([Record(0, 0, None, b"one")]))
    options = MirrorOptions(in_flight_bytes_max=300 * KIB)
    with patch.object(audit_commits, "WINDOWS_MAX", 10), clusters.copier(options, tells_audit=True) as copier:
        for _ in range(100):
            copier.turn()
        audit = copier.copies[many].audit
        assert audit is not None
        assert clusters.is_copied(few)
        assert 10 <= len(audit.state.windows) < 60, "what was on its way comes, and no more"
        while not copier.is_finished:
            copier.close_audit()
            assert audit.unpublished is not None
            audit.on_published()
            for _ in range(100):
                copier.turn()
    assert clusters.is_copied(many)


def no_at(*questions: int) -> Callable[[], bool]:
    """A lease that has lapsed when it is checked for these times, counted from 0, and is renewed each time."""
    numbers = itertools.count()
    return lambda: next(numbers) not in questions


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("value_bytes", [10, 40_000], ids=["many batches to a fetch", "one batch to a fetch"])
def test_batch_that_was_read_while_the_lease_had_lapsed_is_read_again(at: int, value_bytes: int) -> None:
    clusters = TwoClusters(8, value_bytes)
    options = MirrorOptions(in_flight_bytes_max=300 * KIB)
    with clusters.copier(options, may_write=no_at(at, at + 5)) as copier:
        turn_until_finished(copier)
        copier.drain()
        assert all(clusters.is_copied(each) for each in clusters.partitions)
        for copy in copier.copies.values():
            assert copy.offsets.source_end == clusters.source.partitions[copy.partition].end
            assert (copy.counts.records, copy.counts.duplicate_records) == (16, 0)


def test_lapse_of_the_lease_stops_the_partition_and_says_why() -> None:
    clusters = TwoClusters(8)
    is_held = True
    with clusters.copier(may_write=lambda: is_held) as copier:
        is_held = False
        copier.turn()
        problems = {copy.problem for copy in copier.copies.values()}
        assert problems == {"the mirror's lease has lapsed: nothing is sent"}
        assert not any(copy.in_flight_count for copy in copier.copies.values())
        assert not any(clusters.values(clusters.target, each) for each in clusters.partitions)


def test_progress_whose_write_failed_is_stored_with_the_next_one() -> None:
    clusters = TwoClusters(2)
    with clusters.copier() as copier:
        turn_until_finished(copier)
        clusters.target.brokers[1].error_of = lambda api, partition: (
            ErrorCode.MESSAGE_TOO_LARGE if api is ApiKey.PRODUCE and partition == PROGRESS_PARTITION else None
        )
        for copy in copier.copies.values():
            copy.on_progress_in_doubt()
        with pytest.raises(JournalNotWritten):
            copier.finish_progress()
        clusters.target.brokers[1].error_of = lambda api, partition: None
        before = clusters.target.partitions[PROGRESS_PARTITION].end
        copier.finish_progress()
        assert clusters.target.partitions[PROGRESS_PARTITION].end > before
        assert not any(copy.is_dirty for copy in copier.copies.values())

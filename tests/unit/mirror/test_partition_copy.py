from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from ottla.client.fetching.fetch_requests import FetchedPartition
from ottla.mirror.journal import Counts, SourcePartition
from ottla.mirror.offset_translation import OffsetTranslation, Run
from ottla.mirror.partition_copy import PartitionCopy, Phase, TargetLostRecords
from ottla.mirror.tail_match import TailMatch
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record


def a_copy(source_end: int = 0, target_end: int = 0) -> PartitionCopy:
    source = SourcePartition("live", UUID(int=1), "t", 0)
    copy = PartitionCopy(source, UUID(int=2), OffsetTranslation(source_end, target_end), Counts())
    copy.on_tail_matched(TailMatch([], []), target_end, counts=Counts())
    return copy


def fetched(*base_offsets: int, count: int = 2, next_offset: int | None = None) -> FetchedPartition:
    rows = [Record(0, 0, None, b"v") for _ in range(count)]
    log = b"".join(bytes(build_batch(rows, base_offset=each)) for each in base_offsets)
    end = next_offset if next_offset is not None else base_offsets[-1] + count
    return FetchedPartition(TopicPartition("t", 0), 0, end, end, end, 0, memoryview(log), ())


def test_progress_follows_acknowledgements_in_order_when_they_arrive_in_any_order() -> None:
    copy = a_copy(target_end=100)
    first, second, third = copy.take(fetched(0, 2, 4))
    assert copy.next_offset == 6
    assert copy.on_acknowledged(second, 102) == []
    assert copy.offsets.source_end == 0
    assert copy.on_acknowledged(first, 100) == []
    assert (copy.offsets.source_end, copy.offsets.target_end) == (4, 104)
    copy.on_acknowledged(third, 104)
    assert copy.offsets.runs == [Run(0, 100, 6)]
    assert copy.counts.records == 6


def test_offsets_that_others_took_are_reported() -> None:
    copy = a_copy()
    first, second = copy.take(fetched(0, 2))
    assert copy.on_acknowledged(first, 5) == [range(5)]
    assert copy.on_acknowledged(second, 9) == [range(7, 9)]
    assert copy.offsets.runs == [Run(0, 5, 2), Run(2, 9, 2)]


def test_one_marker_of_its_transaction_explains_one_offset() -> None:
    copy = a_copy()
    first, second = copy.take(fetched(0, 2))
    copy.on_marker()
    assert copy.on_acknowledged(first, 1) == []
    assert copy.on_acknowledged(second, 4) == [range(3, 4)], "the marker was before the first"


def test_offsets_beside_a_marker_are_reported_with_it() -> None:
    """A record of others may come before the marker or after it."""
    copy = a_copy()
    (flight,) = copy.take(fetched(0))
    copy.on_marker()
    assert copy.on_acknowledged(flight, 2) == [range(2)]


def test_target_that_gives_an_offset_again_has_lost_records() -> None:
    copy = a_copy(target_end=100)
    (flight,) = copy.take(fetched(0))
    with pytest.raises(TargetLostRecords):
        copy.on_acknowledged(flight, 90)


def test_what_follows_the_last_batch_is_done_with_it() -> None:
    copy = a_copy()
    (flight,) = copy.take(fetched(0, next_offset=7))
    assert copy.next_offset == 7
    copy.on_acknowledged(flight, 0)
    assert copy.offsets.source_end == 7


@pytest.mark.parametrize("next_offset", [3, 9])
def test_fetch_without_anything_to_copy_is_progress(next_offset: int) -> None:
    copy = a_copy()
    empty = FetchedPartition(TopicPartition("t", 0), 0, next_offset, 9, 9, 0, memoryview(b""), ())
    assert list(copy.take(empty)) == []
    assert copy.offsets.source_end == next_offset
    assert copy.is_dirty


def test_failed_copy_continues_after_the_records_that_arrived() -> None:
    copy = a_copy()
    flights: Sequence[object] = list(copy.take(fetched(0, 2, 4)))
    assert len(flights) == 3
    copy.fail("the leader is gone", is_final=False)
    assert (copy.phase, copy.next_offset) == (Phase.STUCK, 0)
    copy.on_tail_matched(TailMatch([Run(0, 0, 4)], []), 4, counts=Counts())
    assert (copy.phase, copy.next_offset, copy.problem) == (Phase.COPYING, 4, None)
    assert [flight.runs for flight in copy.take(fetched(2, 4))] == [(Run(4, 0, 2),)]


def test_source_that_deleted_records_is_followed_and_the_loss_counted() -> None:
    copy = a_copy(source_end=10)
    assert copy.on_overtaken(25) == 15
    assert copy.on_overtaken(20) == 0
    assert (copy.next_offset, copy.counts.lost_offsets) == (25, 15)


def test_target_that_shrank_gets_the_records_again() -> None:
    copy = a_copy()
    for flight in copy.take(fetched(0, 2, 4)):
        copy.on_acknowledged(flight, flight.runs[0].source_first)
    copy.on_target_shrank(3)
    assert (copy.next_offset, copy.offsets.target_end, copy.counts.recopied_records) == (3, 3, 3)

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.audit.count import AuditMessage
from ottla.audit.partition_count import STRETCH_WINDOWS, BatchPlace, PartitionCount
from ottla.audit.snapshot import AuditSnapshot
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition

SIZE_MS = 600_000
CLICKS = TopicPartition("clicks", 3)
TOPIC_ID = UUID(int=7)
FAR_MS = 2**50


def new(place: BatchPlace = BatchPlace(0, 0), topic_id: UUID = TOPIC_ID) -> PartitionCount:  # noqa: B008  it is a tuple
    return PartitionCount(CLICKS, topic_id, SIZE_MS, place)


def committed(count: PartitionCount, topic_id: UUID = TOPIC_ID, window_ms: int = SIZE_MS) -> PartitionCount | None:
    """The state from which the next process continues."""
    return PartitionCount.from_commit(CLICKS, topic_id, window_ms, count.place.next_offset, count.to_metadata())


def totals(messages: list[AuditMessage]) -> dict[int, int]:
    found: dict[int, int] = {}
    for each in AuditSnapshot(messages).counts:
        found[each.key.window.start_ms] = found.get(each.key.window.start_ms, 0) + each.records
    return found


def test_count_continues_from_its_commit_without_counting_twice_or_leaving_out() -> None:
    count = new()
    count.add({0: 5}, 5, 1)
    told = count.unsent()
    again = committed(count)
    assert again is not None
    # Published, and not committed: the next process does it again.
    count.add({0: 2, SIZE_MS: 1}, 8, 2)
    told += count.unsent()
    again.add({0: 2, SIZE_MS: 1}, 8, 9)
    again.add({SIZE_MS: 4}, 12, 9)
    told += again.unsent()
    assert totals(told) == {0: 7, SIZE_MS: 5}


def test_two_that_count_the_same_log_send_the_same_in_any_order_of_steps() -> None:
    batches = [({number * SIZE_MS: number + 1}, 10 * (number + 1)) for number in range(3 * STRETCH_WINDOWS)]
    one, other = new(), new()
    told: list[AuditMessage] = []
    for index, (counts, next_offset) in enumerate(batches):
        one.add(counts, next_offset, 1)
        other.add(counts, next_offset, 1)
        if index % 5 == 0:
            told += one.unsent()
        if index % 7 == 0:
            told += other.unsent()
            resumed = committed(other)
            assert resumed is not None
            other = resumed
    told += [*other.unsent(), *one.unsent()]
    assert totals(told) == {number * SIZE_MS: number + 1 for number in range(3 * STRETCH_WINDOWS)}
    assert one.place == other.place
    assert one.place.first_offset > 0


def test_commit_is_never_larger_than_brokers_take() -> None:
    count = new(BatchPlace(2**62, 2**62))
    largest = 0
    for number in range(3 * STRETCH_WINDOWS):
        count.add({FAR_MS * SIZE_MS // SIZE_MS + number * SIZE_MS: 2**31}, 2**62 + number + 1, FAR_MS * 2)
        largest = max(largest, len(count.to_metadata()))
    assert 2_000 < largest < 4_096


def test_a_count_is_sent_again_until_it_is_confirmed() -> None:
    count = new()
    count.add({0: 5}, 5, 1)
    first = count.unsent()
    assert count.unsent() == first
    count.add({0: 1}, 6, 1)
    count.confirm(first)
    (newer,) = count.unsent()
    count.confirm([newer])
    assert count.unsent() == []


def test_records_that_were_deleted_before_they_were_counted_begin_a_new_stretch() -> None:
    count = new()
    count.add({0: 5}, 5, 1)
    count.skip(20)
    count.add({0: 3}, 23, 1)
    assert totals(count.unsent()) == {0: 8}
    assert count.place == BatchPlace(20, 23)


def test_records_at_offsets_that_were_lost_are_counted_again() -> None:
    count = new()
    count.add({0: 10}, 10, 1)
    told = count.unsent()
    count.begin_again(6)
    count.add({0: 4}, 10, 1)
    assert totals(told + count.unsent()) == {0: 14}
    # A second loss down to the same offset is another one.
    count.begin_again(6)
    count.add({0: 4}, 10, 1)
    assert totals(told + count.unsent()) == {0: 18}


def test_recreated_topic_is_counted_from_its_start() -> None:
    count = new()
    count.add({0: 10}, 10, 1)
    assert committed(count, UUID(int=8)) is None


def test_windows_of_another_size_begin_a_stretch() -> None:
    count = new()
    count.add({0: 10}, 10, 1)
    other = committed(count, window_ms=2 * SIZE_MS)
    assert other is not None
    assert other.place == BatchPlace(10, 10)


def test_late_records_are_those_met_after_their_window() -> None:
    count = new()
    count.add({0: 5, SIZE_MS: 1}, 6, SIZE_MS)
    found = {
        each.key.window.start_ms: (each.late_records, each.last_seen_ms)
        for each in AuditSnapshot(count.unsent()).counts
    }
    assert found == {0: (5, SIZE_MS), SIZE_MS: (0, SIZE_MS)}


def test_end_of_a_partition_is_the_last_word() -> None:
    count = new()
    reports = [count.report(7, 1, has_ended=True), count.report(7, 1), count.report(6, 1)]
    (last,) = AuditSnapshot(reports).reports
    assert last.has_ended


@pytest.mark.parametrize("metadata", ["", "{", "[]", "[1,2,3,4,5]", '["",1,0,0,[[1]]]', '["x",1,0,0,[]]', "[" * 5_000])
def test_foreign_commit_is_refused(metadata: str) -> None:
    with pytest.raises(WireError, match="the count of clicks-3 cannot be read"):
        PartitionCount.from_commit(CLICKS, TOPIC_ID, SIZE_MS, 5, metadata)

from __future__ import annotations

from collections.abc import Callable
from itertools import count as numbers
from uuid import UUID

from ottla.audit.count import AuditMessage, Count, Report
from ottla.audit.snapshot import AuditSnapshot
from ottla.audit.tally import Tally

SIZE_MS = 600_000


def new_instances() -> Callable[[], UUID]:
    each = numbers(1)
    return lambda: UUID(int=next(each))


def tally(cells_max: int = 10) -> Tally:
    return Tally("producer", SIZE_MS, new_instances(), cells_max=cells_max)


def records(messages: list[AuditMessage]) -> dict[tuple[str, int], int]:
    snapshot = AuditSnapshot(messages)
    found: dict[tuple[str, int], int] = {}
    for each in snapshot.counts:
        place = each.key.topic, each.key.window.start_ms
        found[place] = found.get(place, 0) + each.records
    return found


def test_records_are_counted_by_topic_and_window() -> None:
    counts = tally()
    counts.add("clicks", [0, 1, SIZE_MS - 1], 5)
    counts.add("clicks", [SIZE_MS, 3, -1], 5)
    counts.add("views", [2 * SIZE_MS], 5)
    assert records(counts.unsent(6)) == {
        ("clicks", 0): 4,
        ("clicks", SIZE_MS): 1,
        ("clicks", -SIZE_MS): 1,
        ("views", 2 * SIZE_MS): 1,
    }


def test_records_met_after_their_window_are_late() -> None:
    counts = tally()
    counts.add("clicks", [0, 0], SIZE_MS - 1)
    counts.add("clicks", [0], SIZE_MS)
    (found,) = [each for each in counts.unsent(0) if isinstance(each, Count)]
    assert (found.records, found.late_records, found.last_seen_ms) == (3, 1, SIZE_MS)


def test_confirmed_counts_are_sent_once_and_others_again() -> None:
    counts = tally()
    counts.add("clicks", [0], 1)
    first = counts.unsent(2)
    assert records(first) == {("clicks", 0): 1}
    assert records(counts.unsent(3)) == {("clicks", 0): 1}
    counts.confirm(first)
    assert records(counts.unsent(4)) == {}


def test_records_counted_while_a_message_is_in_flight_are_in_the_next() -> None:
    counts = tally()
    counts.add("clicks", [0], 1)
    under_way = counts.unsent(2)
    counts.add("clicks", [0], 3)
    counts.confirm(under_way)
    assert records(counts.unsent(4)) == {("clicks", 0): 2}


def test_counter_with_many_windows_continues_under_a_new_instance_without_loss_or_duplicates() -> None:
    counts, told = tally(cells_max=3), list[AuditMessage]()
    for number in range(20):
        counts.add("clicks", [number * SIZE_MS, 0], number)
        messages = counts.unsent(number)
        told += messages
        if number % 3:
            counts.confirm(messages)
    instances = {each.key.instance for each in told if isinstance(each, Count)}
    assert len(instances) > 3
    assert records(told) == {("clicks", 0): 21} | {("clicks", number * SIZE_MS): 1 for number in range(1, 20)}


def test_memory_has_a_bound_while_no_message_is_confirmed() -> None:
    counts, told = tally(cells_max=10), list[AuditMessage]()
    for number in range(1_000):
        counts.add("clicks", [number * SIZE_MS], 0)
        if number % 7 == 0:
            told = counts.unsent(number)
    assert len(told) <= 31
    assert counts.uncounted_records > 900
    assert (counts.newly_uncounted(), counts.newly_uncounted()) == (counts.uncounted_records, 0)
    assert sum(records(counts.unsent(1)).values()) == 1_000 - counts.uncounted_records
    counts.confirm(counts.unsent(2))
    before = counts.uncounted_records
    counts.add("clicks", [5_000 * SIZE_MS], 0)
    assert counts.uncounted_records == before, "it counts again when its messages are taken"


def test_reports_name_every_topic_and_the_end() -> None:
    counts = tally()
    counts.add_topic("quiet")
    counts.add("clicks", [0], 1)
    reports = [each for each in counts.unsent(9, has_ended=True) if isinstance(each, Report)]
    assert [(each.key.topic, each.until_ms, each.has_ended) for each in reports] == [
        ("clicks", 9, True),
        ("quiet", 9, True),
    ]

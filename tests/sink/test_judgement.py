"""What the harness of the exactly-once sink must find."""

from __future__ import annotations

from collections import Counter

from tests.sink.judgement import Row, problems_of

SOURCE = [Row(b"%d" % (number % 2), b"%d" % number) for number in range(6)]
ACKNOWLEDGED = Counter(row.value for row in SOURCE)


def test_a_copy_with_each_row_once_and_in_order_has_no_problem() -> None:
    # Only the order of each key counts: another key is in another partition.
    assert problems_of(SOURCE, sorted(SOURCE, key=lambda row: row.key), ACKNOWLEDGED) == []


def test_a_row_that_is_missing_is_found() -> None:
    assert problems_of(SOURCE, SOURCE[:-1], ACKNOWLEDGED) == [f"1 lost, such as {SOURCE[-1]}"]


def test_a_row_that_was_written_twice_is_found() -> None:
    problems = problems_of(SOURCE, [*SOURCE, SOURCE[2]], ACKNOWLEDGED)
    assert problems == [f"1 written more than once, or never read, such as {SOURCE[2]}"]


def test_rows_in_another_order_are_found() -> None:
    swapped = [SOURCE[2], SOURCE[1], SOURCE[0], *SOURCE[3:]]
    assert problems_of(SOURCE, swapped, ACKNOWLEDGED) == ["the rows of key 0 are in another order"]


def test_an_acknowledged_record_that_the_source_lacks_is_found() -> None:
    problems = problems_of(SOURCE[:-1], SOURCE[:-1], ACKNOWLEDGED)
    assert problems == [f"1 acknowledged, and not in the source, such as {SOURCE[-1].value!r}"]

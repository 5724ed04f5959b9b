from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.offset_map import Run
from ottla.mirror.tail_match import Digest, match_tail


def digests(contents: str, first: int = 0) -> list[Digest]:
    return [Digest(first + at, ord(content)) for at, content in enumerate(contents)]


def test_everything_that_arrived_is_found() -> None:
    match = match_tail(digests("abc", 70), digests("abcdef", 10))
    assert match.runs == [Run(10, 70, 3)]
    assert match.foreign_offsets == []


def test_nothing_arrived() -> None:
    match = match_tail([], digests("abc"))
    assert (match.runs, match.foreign_offsets) == ([], [])


def test_further_copies_are_duplicates() -> None:
    match = match_tail(digests("aabcbcx", 70), digests("abcdef", 10))
    assert match.runs == [Run(10, 70, 1), Run(11, 72, 2)]
    assert match.duplicate_offsets == [71, 74, 75]
    assert match.foreign_offsets == [76]


def test_records_that_are_no_copies_are_foreign() -> None:
    match = match_tail(digests("axbyz"), digests("abc"))
    assert match.runs == [Run(0, 0, 1), Run(1, 2, 1)]
    assert match.foreign_offsets == [1, 3, 4]


def test_record_that_was_compacted_away_on_the_target_does_not_hide_the_later_ones() -> None:
    match = match_tail(digests("ac"), digests("abcd"))
    assert match.runs == [Run(0, 0, 1), Run(2, 1, 1)]


def test_gaps_of_the_source_are_kept_apart() -> None:
    match = match_tail(digests("abc"), [Digest(3, ord("a")), Digest(4, ord("b")), Digest(9, ord("c"))])
    assert match.runs == [Run(3, 0, 2), Run(9, 2, 1)]


@given(st.text("ab", max_size=30), st.integers(0, 30))
def test_copy_of_equal_records_goes_on_after_as_many_as_arrived(contents: str, arrived: int) -> None:
    arrived = min(arrived, len(contents))
    match = match_tail(digests(contents[:arrived]), digests(contents)[:arrived])
    assert match.records_count == arrived
    assert match.foreign_offsets == []
    assert not arrived or match.runs[-1].source_first + match.runs[-1].length == arrived

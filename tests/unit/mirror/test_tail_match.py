from __future__ import annotations

from string import ascii_letters

from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.offset_translation import Run
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


def test_record_that_the_target_never_got_is_copied_again_with_all_that_follow() -> None:
    match = match_tail(digests("acde", 70), digests("abcd", 10), 70)
    assert match.runs == [Run(10, 70, 1)]
    assert match.gap == range(11, 12)
    assert match.duplicate_offsets == [71, 72]
    assert match.foreign_offsets == [73], "the prover looks for it farther on"


def test_first_record_after_the_progress_is_missing() -> None:
    match = match_tail(digests("bc", 70), digests("ab", 10), 70)
    assert (match.runs, match.gap) == ([], range(10, 11))


def test_offsets_that_compaction_left_are_no_gap() -> None:
    tail = [Digest(70, ord("a")), Digest(72, ord("c"))]
    match = match_tail(tail, digests("abcd", 10), 70)
    assert (match.runs, match.gap) == ([Run(10, 70, 1), Run(12, 72, 1)], range(0))


def test_offset_without_a_record_explains_nothing_where_nothing_is_compacted() -> None:
    """It is a marker of another writer's transaction: b was never written."""
    tail = [Digest(70, ord("a")), Digest(72, ord("c")), Digest(73, ord("d"))]
    match = match_tail(tail, digests("abcde", 10), 70, uncompacted_from=60)
    assert (match.runs, match.gap) == ([Run(10, 70, 1)], range(11, 12))
    assert match.duplicate_offsets == [72, 73]


def test_what_retention_took_below_the_logs_start_is_no_gap() -> None:
    match = match_tail(digests("cd", 72), digests("abcde", 10), 70, uncompacted_from=72)
    assert (match.runs, match.gap) == ([Run(12, 72, 2)], range(0))


def test_more_records_are_missing_than_retention_took_offsets() -> None:
    """Offset 71 is a marker: a was deleted, b was never written."""
    match = match_tail(digests("cd", 72), digests("abcd", 10), 70, uncompacted_from=71)
    assert (match.runs, match.gap) == ([], range(10, 12))


def test_gap_after_what_retention_took_is_found() -> None:
    tail = [Digest(72, ord("c")), Digest(74, ord("e"))]
    match = match_tail(tail, digests("abcdef", 10), 70, uncompacted_from=72)
    assert (match.runs, match.gap) == ([Run(12, 72, 1)], range(13, 14))


@given(st.integers(0, 30), st.sets(st.integers(0, 29)), st.sets(st.integers(0, 60)), st.integers(0, 30))
def test_uncompacted_tail_has_a_gap_exactly_where_a_record_was_lost(
    count: int, lost: set[int], others: set[int], deleted_count: int
) -> None:
    """`others`: offsets of markers.  Retention takes records of before the loss only."""
    contents = ascii_letters[:count]
    free = (offset for offset in range(200) if offset not in others)
    written = [(at, Digest(next(free), ord(content))) for at, content in enumerate(contents) if at not in lost]
    intact = [digest.offset for at, digest in written if at < min(lost, default=count)]
    start = intact[min(deleted_count, len(intact) - 1)] if intact else 0
    tail = [digest for _, digest in written if digest.offset >= start]
    match = match_tail(tail, digests(contents), 0, start)
    has_later = any(at > min(lost, default=count) for at, _ in written)
    assert bool(match.gap) == has_later
    if match.gap and intact:
        assert match.gap.start == min(lost)
    if not match.gap:
        assert match.records_count == len(tail)


def test_what_others_wrote_between_does_not_hide_a_gap() -> None:
    match = match_tail(digests("axc", 70), digests("abc", 10), 70)
    assert (match.runs, match.gap) == ([Run(10, 70, 1)], range(11, 12))


def test_restart_in_the_middle_of_recopied_records_continues_after_them() -> None:
    match = match_tail(digests("acdbc", 70), digests("abcde", 10), 70)
    assert match.runs == [Run(10, 70, 1), Run(11, 73, 2)]
    assert (match.duplicate_offsets, match.gap) == ([71, 72], range(0))


@given(st.integers(0, 30), st.sets(st.integers(0, 29)), st.integers(0, 3))
def test_compaction_of_the_target_is_never_called_a_gap(count: int, compacted: set[int], others_count: int) -> None:
    """What others wrote came first."""
    contents = ascii_letters[:count]
    written = digests("." * others_count + contents, 70)
    tail = [each for at, each in enumerate(written) if at - others_count not in compacted]
    match = match_tail(tail, digests(contents), 70)
    assert not match.gap
    assert match.records_count == count - len([at for at in compacted if at < count])


@given(st.text("abc", max_size=30), st.sets(st.integers(0, 29)))
def test_nothing_that_the_target_lacks_counts_as_copied(contents: str, lost: set[int]) -> None:
    """Equal records, too: then which of them is lost cannot be seen, but how many there are."""
    kept = "".join(content for at, content in enumerate(contents) if at not in lost)
    match = match_tail(digests(kept, 70), digests(contents), 70)
    confirmed = contents[: match.runs[-1].source_end if match.runs else 0]
    letters = iter(kept)
    assert all(content in letters for content in confirmed)


@given(st.text("ab", max_size=30), st.integers(0, 30))
def test_copy_of_equal_records_continues_after_as_many_as_arrived(contents: str, arrived: int) -> None:
    arrived = min(arrived, len(contents))
    match = match_tail(digests(contents[:arrived]), digests(contents)[:arrived])
    assert match.records_count == arrived
    assert match.foreign_offsets == []
    assert not arrived or match.runs[-1].source_first + match.runs[-1].length == arrived

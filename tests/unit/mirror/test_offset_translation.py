from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.offset_translation import CHUNK_RUNS, OffsetTranslation, Run


def copied(gaps: list[tuple[int, int]], lengths: list[int]) -> tuple[OffsetTranslation, dict[int, int]]:
    """A map of runs after gaps on each side, and the same as a table."""
    offsets, table = OffsetTranslation(5, 3), dict[int, int]()
    for (source_gap, target_gap), length in zip(gaps, lengths, strict=False):
        run = Run(offsets.source_end + source_gap, offsets.target_end + target_gap, length)
        offsets.extend(run)
        table |= {run.source_first + at: run.target_first + at for at in range(length)}
    return offsets, table


GAPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30)
LENGTHS = st.lists(st.integers(1, 4), min_size=30, max_size=30)


@given(GAPS, LENGTHS)
def test_every_source_offset_becomes_that_of_the_next_copied_record(
    gaps: list[tuple[int, int]], lengths: list[int]
) -> None:
    offsets, table = copied(gaps, lengths)
    for source in range(offsets.source_end + 3):
        later = [there for here, there in table.items() if here >= source]
        assert offsets.translate(source) == min(later, default=offsets.target_end)


@given(GAPS, LENGTHS, st.integers(0, 150))
def test_truncated_map_is_unchanged_below_and_continues_with_the_first_lost_record(
    gaps: list[tuple[int, int]], lengths: list[int], target_end: int
) -> None:
    offsets, table = copied(gaps, lengths)
    offsets.truncate(target_end)
    left = {here: there for here, there in table.items() if there < target_end}
    assert {here: offsets.translate(here) for here in left} == left
    lost = sorted(table.keys() - left.keys())
    assert not lost or offsets.source_end <= lost[0]
    assert all(here < offsets.source_end for here in left)


@given(GAPS, LENGTHS, st.integers(0, 150))
def test_source_that_shrank_keeps_what_is_below(
    gaps: list[tuple[int, int]], lengths: list[int], source_end: int
) -> None:
    offsets, table = copied(gaps, lengths)
    target_end = offsets.target_end
    offsets.truncate_source(source_end)
    left = {here: there for here, there in table.items() if here < source_end}
    assert {here: offsets.translate(here) for here in left} == left
    assert offsets.target_end == target_end
    assert offsets.source_end <= max(source_end, 5)


def test_records_without_gaps_are_one_run() -> None:
    offsets = OffsetTranslation(0, 100)
    for at in range(50):
        offsets.extend(Run(at * 3, 100 + at * 3, 3))
    assert offsets.runs == [Run(0, 100, 150)]


def test_runs_below_the_log_start_are_forgotten_in_whole_chunks() -> None:
    offsets = OffsetTranslation(0, 0)
    for at in range(3 * CHUNK_RUNS):
        offsets.extend(Run(at * 2, at, 1))
    before = offsets.chunks()
    offsets.prune(2 * (CHUNK_RUNS + 7))
    assert offsets.chunks() == before[1:]
    assert offsets.translate(4 * CHUNK_RUNS) == 2 * CHUNK_RUNS


def test_reader_ahead_of_the_copy_gets_its_end() -> None:
    offsets = OffsetTranslation(0, 0)
    offsets.extend(Run(0, 0, 10))
    offsets.skip_to(12)
    assert [offsets.translate(each) for each in (9, 10, 11, 12, 99)] == [9, 10, 10, 10, 10]

"""How much of a backlog one micro-batch takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.identifiers import TopicPartition
from ottla.spark.options.read_options import TriggerLimits
from ottla.spark.source.offset_ranges import is_too_few, limited_ends

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
limits = st.builds(
    TriggerLimits,
    rows_max=st.none() | st.integers(1, 5_000),
    bytes_max=st.none() | st.integers(1, 500_000),
    partition_rows_max=st.none() | st.integers(1, 2_000),
)
backlogs = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 5)),
    st.tuples(st.integers(0, 1_000), st.integers(0, 3_000), st.floats(0, 500)),
    min_size=1,
)


@given(backlogs, limits)
def test_no_limit_is_exceeded_and_every_backlog_comes_to_an_end(
    backlog: dict[TopicPartition, tuple[int, int, float]], limits: TriggerLimits
) -> None:
    first = {place: start for place, (start, _, _) in backlog.items()}
    latest = {place: start + count for place, (start, count, _) in backlog.items()}
    offset_bytes = {place: average for place, (_, _, average) in backlog.items()}
    ends = limited_ends(first, latest, limits, offset_bytes)
    taken = {place: ends[place] - first[place] for place in first}
    assert all(0 <= count <= latest[place] - first[place] for place, count in taken.items())
    assert sum(taken.values()) > 0 or first == latest
    assert sum(taken.values()) <= (limits.rows_max or 10**9)
    assert max(taken.values()) <= (limits.partition_rows_max or 10**9)
    if limits.bytes_max is not None and sum(taken.values()) > 1:
        assert sum(count * offset_bytes[place] for place, count in taken.items()) <= limits.bytes_max * 1.001


def test_bytes_are_shared_in_proportion_to_what_waits() -> None:
    ends = limited_ends({A: 0, B: 0}, {A: 1000, B: 100}, TriggerLimits(bytes_max=11_000), {A: 10.0, B: 100.0})
    assert ends == {A: 550, B: 55}


def test_few_records_wait_for_others_but_not_for_ever() -> None:
    limits = TriggerLimits(rows_min=10, delay_max_ms=1_000)
    assert is_too_few({A: 0, B: 0}, {A: 4, B: 5}, limits, 999)
    assert not is_too_few({A: 0, B: 0}, {A: 4, B: 6}, limits, 999)
    assert not is_too_few({A: 0, B: 0}, {A: 4, B: 5}, limits, 1_000)
    assert not is_too_few({A: 0}, {A: 0}, TriggerLimits(), 0)

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.source.range_reading import lost_until


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 100), st.integers(0, 100))
def test_no_offset_that_the_log_has_is_lost_and_every_other_one_is(
    position: int, count: int, start: int, length: int
) -> None:
    """As a reader does it: it asks again from where the lost offsets end."""
    log, end = range(start, start + length), position + count
    read: list[int] = []
    at = position
    while at < end:
        until = lost_until(at, end, log)
        if until is None:
            assert at in log, "what is not lost can be read, or is waited for"
            read.append(at)
            at += 1
        else:
            assert at < until <= end
            at = until
    assert read == [offset for offset in log if position <= offset < end]


def test_the_end_of_a_log_is_no_loss_while_it_was_not_planned_beyond() -> None:
    assert lost_until(10, 12, range(12)) is None
    assert lost_until(10, 12, range(10)) == 12

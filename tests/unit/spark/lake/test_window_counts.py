from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ConfigError
from ottla.model.windows import window_start_ms
from ottla.spark.lake.tasks import window_counts
from tests.property.property_settings import example_settings

US = pa.timestamp("us", tz="UTC")


@example_settings(200)
@given(st.lists(st.lists(st.none() | st.integers(-(10**7), 10**7), max_size=20), max_size=4), st.integers(1, 10_000))
def test_counts_are_those_of_each_record(chunks: list[list[int | None]], window_ms: int) -> None:
    column = pa.chunked_array([pa.array([None if t is None else t * 1_000 for t in chunk], US) for chunk in chunks], US)
    times_ms = [-1 if time_ms is None else time_ms for chunk in chunks for time_ms in chunk]
    truth = Counter(window_start_ms(time_ms, window_ms) for time_ms in times_ms)
    assert window_counts(column, window_ms) == truth
    assert window_counts(column.combine_chunks(), window_ms) == truth


def test_parts_of_a_millisecond_before_1970_belong_to_the_window_before() -> None:
    assert window_counts(pa.array([-1, 0, 999], US), 1) == {-1: 1, 0: 2}


def test_windows_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="window_ms is 0"):
        window_counts(pa.array([], US), 0)

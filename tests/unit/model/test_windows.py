from __future__ import annotations

import pytest

from ottla.model.errors import ConfigError
from ottla.model.windows import Window, check_window_ms, time_text, window_of, window_start_ms

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("time_ms", "start_ms"),
    [(0, 0), (HOUR_MS - 1, 0), (HOUR_MS, HOUR_MS), (-1, -HOUR_MS), (-HOUR_MS, -HOUR_MS), (-HOUR_MS - 1, -2 * HOUR_MS)],
)
def test_window_holds_its_first_time_and_not_its_end(time_ms: int, start_ms: int) -> None:
    window = window_of(time_ms, HOUR_MS)
    assert window == Window(start_ms, HOUR_MS)
    assert window_start_ms(time_ms, HOUR_MS) == start_ms
    assert time_ms in window
    assert window.end_ms not in window
    assert window.start_ms - 1 not in window


def test_times_are_shown_as_people_write_them() -> None:
    assert str(window_of(1_330_604_400_000, HOUR_MS)) == "2012-03-01T12:00Z/2012-03-01T13:00Z"
    assert time_text(1_330_604_400_123) == "2012-03-01T12:20:00.123Z"
    assert time_text(2**62) == f"{2**62} ms"


@pytest.mark.parametrize("size_ms", [0, -1, 86_400_001])
def test_sizes_that_no_window_can_have_are_refused(size_ms: int) -> None:
    with pytest.raises(ConfigError, match=f"window.ms is {size_ms}"):
        check_window_ms(size_ms, "window.ms")

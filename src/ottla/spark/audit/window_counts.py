"""Records by event-time window, counted on a column of timestamps; without pyspark."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from ottla.model.identifiers import NO_TIMESTAMP
from ottla.model.windows import DEFAULT_WINDOW_MS, check_window_ms

_US_PER_MS: Final = 1_000


def window_counts(timestamps: pa.Array | pa.ChunkedArray, window_ms: int = DEFAULT_WINDOW_MS) -> dict[int, int]:
    """How many of the timestamps (Arrow `timestamp[us]`) are in each window, by the window's start in ms.

    A null is a record without a time: it counts as the time -1 ms, as in Kafka.
    """
    check_window_ms(window_ms)
    chunks = timestamps.chunks if isinstance(timestamps, pa.ChunkedArray) else [timestamps]
    found: dict[int, int] = {}
    for chunk in chunks:
        if len(chunk):
            for start_ms, count in _counts(chunk, window_ms):
                found[start_ms] = found.get(start_ms, 0) + count
    return found


def _counts(chunk: pa.Array, window_ms: int) -> list[tuple[int, int]]:
    numbers: Any = chunk.cast(pa.int64()).fill_null(NO_TIMESTAMP * _US_PER_MS).to_numpy(zero_copy_only=False)
    # Floor division, also before 1970.
    windows = numbers // (window_ms * _US_PER_MS)
    first = int(windows[0])
    if (windows == first).all():
        return [(first * window_ms, len(numbers))]
    starts, counts = np.unique(windows, return_counts=True)
    return [(int(start) * window_ms, int(count)) for start, count in zip(starts, counts, strict=True)]

"""`ottla` with a wall clock that a file shifts while it runs; the monotonic clock is unchanged.

    OTTLA_TEST_CLOCK=FILE python -m tests.cluster.shifted_broker serve ...

In the process itself, because libfaketime 0.9.10 breaks `time.sleep` of Python 3.11 (EINVAL), which kazoo retries with.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from ottla.cli import main
from tests.cluster.broker_clocks import CLOCK_FILE_VARIABLE, read_shift_ns


def shift() -> None:
    """From now on every reading of the wall clock has the file's shift added."""
    with Path(os.environ[CLOCK_FILE_VARIABLE]).open("rb") as opened:
        # The clock is read for each request: a read of mapped memory is cheap beside it.
        shared = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    true_ns = time.time_ns
    time.time_ns = lambda: true_ns() + read_shift_ns(shared)
    time.time = lambda: time.time_ns() / 1e9


if __name__ == "__main__":
    shift()
    main()

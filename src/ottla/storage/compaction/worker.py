"""The process that cleans: `python -m ottla.storage.compaction.worker BYTES_PER_SECOND`.

It reads jobs from standard input, a line of JSON each, and writes their results to standard output in the same way.  It
runs at the lowest priority and ends when its input does: with the broker, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Final

from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import Disk
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.compaction.cleaner import clean
from ottla.storage.compaction.plan import CleanFailure, CleanJob, CleanResult, result_to_json
from ottla.storage.errors import CorruptLog, lacks_room

# Shorter waits are accumulated: each sleep has a cost.
_WAIT_MS_MIN: Final = 20


class Throttle:
    """Counts bytes against time; `charge` waits when the rate is exceeded.  Unused bytes are not carried over."""

    def __init__(
        self, bytes_per_second: float, monotonic_ms: Callable[[], int], sleep: Callable[[float], None]
    ) -> None:
        """`sleep` is called with seconds."""
        self._bytes_per_ms = bytes_per_second / 1000
        self._monotonic_ms = monotonic_ms
        self._sleep = sleep
        self._free_at_ms = float(monotonic_ms())

    def charge(self, size_bytes: int) -> None:
        self._free_at_ms += size_bytes / self._bytes_per_ms
        now_ms = self._monotonic_ms()
        wait_ms = self._free_at_ms - now_ms
        if wait_ms >= _WAIT_MS_MIN:
            self._sleep(wait_ms / 1000)
        elif wait_ms < 0:
            self._free_at_ms = float(now_ms)


_NICEST: Final = 19
_CHECK_BYTES: Final = 1024 * 1024
_PR_SET_PDEATHSIG: Final = 1


class BrokerGone(Exception):
    """The broker that waited for the results has ended."""


class Pace:
    """Waits as the throttle requires, and checks regularly that the broker still waits for the results."""

    def __init__(self, charge: Callable[[int], None], check: Callable[[], None]) -> None:
        self._charge = charge
        self._check = check
        self._unchecked_bytes = 0

    def __call__(self, size_bytes: int) -> None:
        self._unchecked_bytes += size_bytes
        if self._unchecked_bytes >= _CHECK_BYTES:
            self._charge(self._unchecked_bytes)
            self._unchecked_bytes = 0
            self._check()


def serve(disk: Disk, jobs: BinaryIO, results: BinaryIO, pace: Pace) -> None:
    """Clean until there are no more jobs."""

    def send(result: CleanResult) -> None:
        results.write(result_to_json(result).encode() + b"\n")
        results.flush()

    for line in jobs:
        try:
            for result in clean(disk, CleanJob.from_json(line.decode()), pace):
                send(result)
        except CorruptLog as error:
            send(CleanFailure(str(error), is_damage=True))
        except OSError as error:
            send(CleanFailure(str(error), is_damage=False, lacks_room=lacks_room(error)))


def main() -> None:
    os.nice(_NICEST)
    _die_with_parent()
    jobs = sys.stdin.buffer

    def check() -> None:
        # The broker sends nothing while a clean is in progress: readable means that its end is closed.
        if select.select([jobs], [], [], 0)[0]:
            raise BrokerGone

    throttle = Throttle(float(sys.argv[1]), SystemClock().monotonic_ms, time.sleep)
    try:
        serve(PosixDisk(), jobs, sys.stdout.buffer, Pace(throttle.charge, check))
    except (BrokerGone, BrokenPipeError, KeyboardInterrupt):
        # Nothing may be written any more, not even buffered data.
        os._exit(1)


def _die_with_parent() -> None:
    """A worker that outlives its broker would write into a directory that another broker may own by now."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()

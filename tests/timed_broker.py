"""`python -m tests.timed_broker FILE serve ...`: a broker that records the longest turn of its event loop.

A turn's time is the processor time of the loop's thread, so other processes of a loaded machine do not count.  FILE has
the longest turn since it was last set to zero, in seconds, as a double.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
from pathlib import Path
from time import thread_time
from typing import Final

_SECONDS: Final = struct.Struct("=d")


class TurnTimes:
    """The file as a test reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(_SECONDS.pack(0.0))

    @property
    def longest_ms(self) -> float:
        (longest_s,) = _SECONDS.unpack(self.path.read_bytes())
        return float(longest_s) * 1_000

    def forget(self) -> None:
        """Set it to zero.  A turn in progress counts to the next measurement."""
        with self.path.open("r+b") as file:
            file.write(_SECONDS.pack(0.0))

    @property
    def command(self) -> tuple[str, ...]:
        """The command of a `RunningBroker`."""
        return (sys.executable, "-m", "tests.timed_broker", str(self.path))


def main() -> None:
    path = Path(sys.argv[1])
    del sys.argv[1]
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), _SECONDS.size)
    from ottla.runtime import event_loop

    # Its turns cannot be seen from outside; asyncio's own loop runs the same callbacks.
    event_loop._FACTORY = None  # type: ignore[misc, assignment]
    loop_class = asyncio.BaseEventLoop
    run_once = loop_class._run_once  # type: ignore[attr-defined]

    def timed(loop: asyncio.BaseEventLoop) -> None:
        began_s = thread_time()
        run_once(loop)
        took_s = thread_time() - began_s
        if took_s > _SECONDS.unpack_from(shared)[0]:
            _SECONDS.pack_into(shared, 0, took_s)

    loop_class._run_once = timed  # type: ignore[attr-defined]
    from ottla.cli import main as ottla

    ottla()


if __name__ == "__main__":
    main()

"""The producing processes advance through the day in step, at full speed, so that consumers see one day and not four.
Each has a slot in a small shared file, writes its progress there, and waits for those far behind it.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Final

from ottla.demo.day import MINUTE_MS

# Large enough that no process waits for the scheduler, far smaller than the lateness limit.
LEAD_MS_MAX: Final = 15 * MINUTE_MS
_ENDED: Final = (1 << 63) - 1


def prepare_steps(path: Path, places_count: int) -> None:
    """No process has begun."""
    path.write_bytes(bytes(8 * places_count))


class InStep:
    """One process's view.  Each slot has one writer; eight aligned bytes are written and read at once."""

    def __init__(self, path: Path, place: int) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._layout = struct.Struct(f"={len(self._map) // 8}q")
        self._place = place

    def reached(self, moment_ms: int) -> None:
        struct.pack_into("=q", self._map, 8 * self._place, moment_ms)

    def ended(self) -> None:
        """No process waits for this one any more."""
        self.reached(_ENDED)

    @property
    def limit_ms(self) -> int:
        """Events that arrive from here on must wait, exclusive."""
        slowest_ms: int = min(self._layout.unpack(self._map))
        return slowest_ms + LEAD_MS_MAX

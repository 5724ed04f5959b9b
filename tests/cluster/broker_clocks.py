"""Wall clocks of brokers, one file each, which a run shifts while they run."""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.testing.running import Place

CLOCK_FILE_VARIABLE: Final = "OTTLA_TEST_CLOCK"
# Brokers with shiftable clocks.
SHIFTED_COMMAND: Final = (sys.executable, "-m", "tests.cluster.shifted_broker")
_SHIFT_NS: Final = struct.Struct("=q")


def read_shift_ns(file: mmap.mmap) -> int:
    """Eight bytes at once: no half of another shift is ever seen."""
    shift_ns: int = _SHIFT_NS.unpack_from(file)[0]
    return shift_ns


class BrokerClocks:
    """`directory` is created for the files.  A shift outlives its broker's restarts."""

    def __init__(self, directory: Path, node_ids: Iterable[int]) -> None:
        directory.mkdir(parents=True)
        self._paths = {node_id: directory / f"broker-{node_id}.clock" for node_id in node_ids}
        for node_id in self._paths:
            self.shift(node_id, 0)

    def shift(self, node_id: int, shift_s: float) -> None:
        """Set the offset of this broker's clock from the true time, from now on."""
        with self._paths[node_id].open("r+b" if self._paths[node_id].exists() else "wb") as opened:
            opened.write(_SHIFT_NS.pack(round(shift_s * 1e9)))

    def placed(self, node_id: int, place: Place) -> Place:
        """Starts the broker at its node's place, with its clock."""
        return place._replace(enter=(*place.enter, "env", f"{CLOCK_FILE_VARIABLE}={self._paths[node_id]}"))

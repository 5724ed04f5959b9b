"""Start-up time and idle memory: of a process of its own in each round, while no other peer runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from bench.peers.peer import StartPeer
from bench.scenarios.scenario import RSS_MB, STARTUP_S, Figures

NAME: Final = "fresh-start"
IDLE_S: Final = 2


def measure_fresh_start(start: StartPeer, work_dir: Path) -> Figures:
    """An empty data directory: seconds to the first ApiVersions answer, then resident memory after 2 s of peace."""
    with start(work_dir) as peer:
        time.sleep(IDLE_S)
        return {STARTUP_S: peer.startup_s, RSS_MB: peer.rss_bytes() / 1e6}

"""Memory and processor time of connections that send nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from bench.peers.peer import Peer
from bench.wire import Wire

KB_PER_CONNECTION: Final = "kb_per_connection"
IDLE_CORES: Final = "idle_cores"
KB_AIM: Final = 10.0
# Opened, used and closed first: what the first connections allocate for all is no connection's own.
OPENED_BEFORE: Final = 100
SETTLE_S: Final = 2.0
IDLE_S: Final = 5.0


def measure_idle(peer: Peer, count: int) -> dict[str, float]:
    """So many connections to the peer's brokers in turn, each of which has asked for ApiVersions and says no more."""
    with Wire(peer.port) as wire:
        ports = sorted(wire.ports_and_partitions("none")[0].values())
    with ExitStack() as before:
        open_connections(before, ports, min(count, OPENED_BEFORE))
    time.sleep(SETTLE_S)
    rss_before = peer.rss_bytes()
    with ExitStack() as connections:
        open_connections(connections, ports, count)
        time.sleep(SETTLE_S)
        rss_open = peer.rss_bytes()
        cpu_before = peer.cpu_seconds()
        time.sleep(IDLE_S)
        return {
            KB_PER_CONNECTION: (rss_open - rss_before) / count / 1000,
            "rss_mb": rss_open / 1e6,
            IDLE_CORES: (peer.cpu_seconds() - cpu_before) / IDLE_S,
        }


def open_connections(stack: ExitStack, ports: list[int], count: int) -> None:
    for index in range(count):
        stack.enter_context(Wire(ports[index % len(ports)])).api_versions()

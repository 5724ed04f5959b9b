"""Holds a session and watches its own lease, for a test that pauses this process; prints a line for each observation.

`ready ID` once it has an ephemeral node; then, after a long pause of its loop, `paused` with the lease and
the state right after the pause, before any event was handled.  At SIGUSR1 its loop hangs
until a byte comes on standard input, with all other threads running.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from ottla.coordination.local.backend import LocalBackend
from ottla.coordination.tree import Tree
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run

PAUSE_MS_MIN = 1_500


def say(line: str) -> None:
    os.write(1, (line + "\n").encode())


async def main(connect: str, session_timeout_ms: int) -> None:
    clock = SystemClock()
    session: Tree
    if connect.startswith("/"):
        session = await LocalBackend(Path(connect), session_timeout_ms=session_timeout_ms).connect()
    else:
        session = await ZooKeeperBackend(
            connect, session_timeout_ms=session_timeout_ms, connection_timeout_ms=30_000
        ).connect()
    await session.create("/held", ephemeral=True)
    loop, over, last_ms = asyncio.get_running_loop(), asyncio.Event(), clock.boottime_ms()

    def look() -> None:
        nonlocal last_ms
        now_ms = clock.boottime_ms()
        if now_ms - last_ms > PAUSE_MS_MIN:
            say(f"paused {'valid' if now_ms < session.lease.until_ms else 'expired'} {session.state.value}")
            over.set()
        last_ms = now_ms
        loop.call_later(0.01, look)

    loop.add_signal_handler(signal.SIGUSR1, os.read, sys.stdin.fileno(), 1)
    look()
    say(f"ready {session.session_id}")
    await over.wait()
    os._exit(0)


if __name__ == "__main__":
    run(main(sys.argv[1], int(sys.argv[2])))

"""A consumer that is observed from another thread, for a test that pauses this process.

Prints `ready` when it owns a partition; then, after a long gap, whether it might still hand out right
after the pause; then `lost` when it has noticed the loss.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

from ottla.client.groups.subscription import Subscription
from ottla.client.membership.membership import Event
from ottla.client.membership.tree.membership import TreeMembership, TreeOptions
from ottla.consumers.effects import Lost, Start
from ottla.runtime.clock import SystemClock

PAUSE_MS_MIN = 1_500


def say(line: str) -> None:
    os.write(1, (line + "\n").encode())


def main(connect: str, session_timeout_ms: int) -> None:
    clock, owns, lost, never = SystemClock(), threading.Event(), threading.Event(), threading.Event()

    def on_events(events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Start):
                owns.set()
            elif isinstance(event, Lost):
                lost.set()

    membership = TreeMembership(connect, "jobs", TreeOptions(session_timeout_ms, connection_timeout_ms=60_000))
    membership.join(Subscription({"t": 1}), on_events)
    owns.wait()
    last_ms = clock.boottime_ms()
    say("ready")
    while True:
        now_ms, until_ms = clock.boottime_ms(), membership.hand_out_until_ms
        if now_ms - last_ms > PAUSE_MS_MIN:
            say("may hand out" if now_ms < until_ms else "may not hand out")
            break
        last_ms = now_ms
        never.wait(0.01)
    lost.wait()
    say("lost")
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

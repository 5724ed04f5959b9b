"""`python -m ottla.testing.controlled.tree_process DIRECTORY`: hold the tree of a cluster that a test controls.

It ends when its standard input does, that is with the test's process, and then removes the directory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from ottla.broker.tree.holder import hold
from ottla.observe.events import DEFAULT_LEVEL, start_logging
from ottla.runtime.event_loop import run

# Brokers that end at the same moment write their last changes to the tree.
LINGERS_S: Final = 1.0


async def hold_for_a_test(directory: Path) -> tuple[int, bool]:
    """The status of `hold`, and whether the test has gone."""
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()
    is_orphan = False

    def on_readable() -> None:
        nonlocal is_orphan
        if not os.read(stdin, 1):
            is_orphan = True
            loop.remove_reader(stdin)
            loop.call_later(LINGERS_S, signal.raise_signal, signal.SIGTERM)

    loop.add_reader(stdin, on_readable)
    # As for the brokers of tests: what is killed is a process, and not the machine.
    status = await hold(directory, is_synced=False)
    return status, is_orphan


if __name__ == "__main__":
    start_logging(DEFAULT_LEVEL)
    # The kernel sends it to a process that is paused when its test's process ends, and would end it without this.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    place = Path(sys.argv[1])
    held, has_lost_its_test = run(hold_for_a_test(place))
    if has_lost_its_test:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(held)

"""`ottla` with a watch on its event loop: a sync in the main thread, from the opened logs to the stop, is a line.

python -m ottla.testing.loop_syncs serve ...

A sync takes as long as the disk likes, and all connections wait for the loop during it.
"""

from __future__ import annotations

import logging
import runpy
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from ottla.broker.broker import Broker
from ottla.observe.events import fields
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory

# The command of a `RunningBroker` that is watched, and the event of a sync in its main thread.
WATCHED_COMMAND: Final = (sys.executable, "-m", "ottla.testing.loop_syncs")
SYNCED_EVENT: Final = "loop.synced"
_FRAMES_SHOWN: Final = 8

log = logging.getLogger(__name__)


def watch() -> None:
    """Report the syncs of this process's main thread while a broker serves."""
    is_serving = False
    sync, opened, stop = PosixDisk.sync, LogDirectory.open, Broker.stop

    def watched_sync(disk: PosixDisk, call: Callable[[int], None], fd: int) -> None:
        if is_serving and threading.current_thread() is threading.main_thread():
            frames = traceback.extract_stack()[-_FRAMES_SHOWN - 1 : -1]
            place = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
            log.critical(SYNCED_EVENT, extra=fields(place=place))
        sync(disk, call, fd)

    def watched_open(*arguments: Any, **options: Any) -> LogDirectory:
        nonlocal is_serving
        directory = opened(*arguments, **options)
        is_serving = True
        return directory

    async def watched_stop(broker: Broker) -> None:
        nonlocal is_serving
        is_serving = False
        await stop(broker)

    PosixDisk.sync = watched_sync  # type: ignore[method-assign, assignment]
    LogDirectory.open = watched_open  # type: ignore[method-assign]
    Broker.stop = watched_stop  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    watch()
    sys.argv[0] = "ottla"
    runpy.run_module("ottla", run_name="__main__")

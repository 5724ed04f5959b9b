"""`python -m ottla.broker.tree.holder DIRECTORY`: hold the tree of a cluster on this machine, until SIGTERM or Ctrl-C.

Its brokers have `tree.socket=DIRECTORY/tree.socket`.  The end of its parent does not end it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.local.server import TreeServer
from ottla.observe.events import DEFAULT_LEVEL, fields, start_logging
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.directory_tree import TREE_FILE

SOCKET_FILE: Final = "tree.socket"
SESSIONS_FILE: Final = "tree-sessions"
READY_EVENT: Final = "tree.ready"

log = logging.getLogger(__name__)


async def hold(directory: Path, *, is_synced: bool = True) -> int:
    """Serve the tree in `directory` until a signal, or until its file fails; the exit status.

    Without `is_synced` the tree survives the end of this process, and no power loss.

    Raises `DirectoryLocked`, `TreeStoreError`, `SocketPathTooLong`, `OSError`.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    lock, clock = FileLock(), SystemClock()
    async with AsyncExitStack() as closing:
        lock.acquire(str(directory))
        closing.callback(lock.release)
        backend = await EmbeddedBackend.open(str(directory / TREE_FILE), clock=clock, is_synced=is_synced)
        closing.push_async_callback(backend.close)
        # A session that only a failure of the file ends: nothing can be served after it.
        failed = asyncio.Event()
        (await backend.connect()).add_session_listener(lambda _: failed.set())
        socket = directory / SOCKET_FILE
        server = TreeServer(backend, socket, str(directory / SESSIONS_FILE), PosixDisk(), clock)
        closing.push_async_callback(server.close)
        if not await _is_before(stopped, server.start()):
            return 0
        log.info(READY_EVENT, extra=fields(socket=socket))
        await _is_before(stopped, failed.wait())
        if not stopped.is_set():
            log.error("tree.failed", extra=fields(directory=directory, hint="look at its disk, and start all again"))
            return 1
    return 0


async def _is_before(event: asyncio.Event, work: Coroutine[object, object, object]) -> bool:
    """Whether `work` is done before the event; if not, it is cancelled."""
    task, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (task, waiting):
            each.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)


if __name__ == "__main__":
    start_logging(DEFAULT_LEVEL)
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    sys.exit(run(hold(place)))

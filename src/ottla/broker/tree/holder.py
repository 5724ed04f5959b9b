"""`python -m ottla.broker.tree.holder DIRECTORY`: hold the tree of a cluster on this machine, until SIGTERM or Ctrl-C.

Its brokers have `tree.socket=DIRECTORY/tree.socket`.  The end of its parent does not end it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Self

from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.local import READY_EVENT, SOCKET_FILE
from ottla.coordination.local.server import TreeServer
from ottla.observe.events import DEFAULT_LEVEL, fields, start_logging
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.directory_tree import TREE_FILE

SESSIONS_FILE: Final = "tree-sessions"

log = logging.getLogger(__name__)


class HeldTree:
    """The embedded tree of `tree_path`, and its server at `socket`; `mark_path` as of `TreeServer`."""

    def __init__(self, backend: EmbeddedBackend, server: TreeServer) -> None:
        self._backend = backend
        self._server = server
        # A session that only a failure of the file ends: nothing can be served after it.
        self.failed: Final = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, tree_path: Path, socket: Path, mark_path: Path, *, may_be_new: bool = True, is_synced: bool = True
    ) -> AsyncIterator[Self]:
        """The caller has a lock that keeps other processes from these files.  Raises `TreeStoreError`."""
        clock = SystemClock()
        backend = await EmbeddedBackend.open(str(tree_path), clock=clock, may_be_new=may_be_new, is_synced=is_synced)
        try:
            server = TreeServer(backend, socket, str(mark_path), PosixDisk(), clock)
            try:
                held = cls(backend, server)
                (await backend.connect()).add_session_listener(lambda _: held.failed.set())
                yield held
            finally:
                await server.close()
        finally:
            await backend.close()

    async def serve(self) -> None:
        """Accept sessions, at once or after the leases of a former server.  Raises `SocketPathTooLong`, `OSError`."""
        await self._server.start()


async def hold(directory: Path, *, is_synced: bool = True) -> int:
    """Serve the tree in `directory` until a signal, or until its file fails; the exit status.

    Without `is_synced` the tree survives the end of this process, and no power loss.

    Raises `DirectoryLocked`, `TreeStoreError`, `SocketPathTooLong`, `OSError`.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    lock = FileLock()
    socket = directory / SOCKET_FILE
    async with AsyncExitStack() as closing:
        lock.acquire(str(directory))
        closing.callback(lock.release)
        tree = await closing.enter_async_context(
            HeldTree.open(directory / TREE_FILE, socket, directory / SESSIONS_FILE, is_synced=is_synced)
        )
        if not await is_before(stopped, tree.serve()):
            return 0
        log.info(READY_EVENT, extra=fields(socket=socket))
        await is_before(stopped, tree.failed.wait())
        if not stopped.is_set():
            log.error("tree.failed", extra=fields(directory=directory, hint="look at its disk, and start all again"))
            return 1
    return 0


async def is_before(event: asyncio.Event, work: Coroutine[object, object, object]) -> bool:
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

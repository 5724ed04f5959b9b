"""The interface of a tree's home for the contract suite, and its implementations."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.local.backend import LocalBackend
from ottla.coordination.local.server import TreeServer
from ottla.coordination.tree import Tree
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import Disk
from ottla.runtime.posix_disk import PosixDisk

SETTLE_S_MAX: Final = 10.0


class RunningHome(Protocol):
    """A home that is up."""

    async def connect(self) -> Tree: ...


class TreeBackend(Protocol):
    """A tree that survives a stop."""

    session_ids_are_change_ids: bool

    def running(self) -> AbstractAsyncContextManager[RunningHome]:
        """Start the home, and stop it cleanly; all sessions end with it."""
        ...

    def crash_writer_command(self) -> list[str]:
        """The command of a process that writes as `crash_writer` says, and takes the home with it when it is killed."""
        ...


class EmbeddedTreeBackend:
    session_ids_are_change_ids = True

    def __init__(self, path: Path) -> None:
        self.path = path

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunningHome]:
        home = await EmbeddedBackend.open(str(self.path))
        try:
            yield home
        finally:
            await home.close()

    def crash_writer_command(self) -> list[str]:
        return [sys.executable, "-m", "tests.contract.crash_writer", "embedded", str(self.path)]


class Connecting(Protocol):
    """A backend whose sessions belong to their callers."""

    async def connect(self) -> Tree: ...


class RunningSessions:
    """The sessions of a test with a backend."""

    def __init__(self, home: Connecting) -> None:
        self._home = home
        self._sessions: list[Tree] = []

    async def connect(self) -> Tree:
        session = await self._home.connect()
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions))


class ZooKeeperTreeBackend:
    """A chroot of a ZooKeeper that keeps running; a crash is one of the client."""

    session_ids_are_change_ids = False

    def __init__(self, connect: str) -> None:
        self.connect_string = connect

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunningHome]:
        home = RunningSessions(ZooKeeperBackend(self.connect_string))
        try:
            yield home
        finally:
            await home.close()

    def crash_writer_command(self) -> list[str]:
        return [sys.executable, "-m", "tests.contract.crash_writer", "zookeeper", self.connect_string]


class LocalTreeBackend:
    """A tree file that a server holds, in this process; sessions reach it through its socket."""

    session_ids_are_change_ids = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunningHome]:
        async with local_tree(self.directory) as path:
            home = RunningSessions(LocalBackend(path))
            try:
                yield home
            finally:
                await home.close()

    def crash_writer_command(self) -> list[str]:
        return [sys.executable, "-m", "tests.contract.crash_writer", "local", str(self.directory)]


@asynccontextmanager
async def local_tree(directory: Path, *, disk: Disk | None = None) -> AsyncIterator[Path]:
    """A server of the tree in `directory`; its socket."""
    backend = await EmbeddedBackend.open(str(directory / "tree.sqlite"))
    path = directory / "tree.socket"
    server = TreeServer(backend, path, str(directory / "tree-sessions"), disk or PosixDisk(), SystemClock())
    try:
        await server.start()
        yield path
    finally:
        await server.close()
        await backend.close()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds; a home that needs longer than the limit fails the test."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while not condition():  # noqa: ASYNC110 (what is awaited may be any state of a tree)
            await asyncio.sleep(0.001)


async def settle(tree: Tree) -> None:
    """Give unexpected callbacks time to run: after a write of the same session they are overdue."""
    await tree.create("/settled")
    await tree.delete("/settled")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

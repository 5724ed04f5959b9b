"""The tree of a process of this machine: what is not the same at every home (`test_tree_contract`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.tree.holder import hold
from ottla.coordination.embedded.errors import TreeStoreFailed
from ottla.coordination.embedded.journal import Journal, JournalEntry
from ottla.coordination.local import SOCKET_FILE
from ottla.coordination.local.backend import LocalBackend
from ottla.coordination.local.messages import Message, decode
from ottla.coordination.local.session import LocalSession, TreeUnreachable
from ottla.coordination.session_keeper import SessionKeeper
from ottla.coordination.tree import ConnectionLoss, SessionLost, SessionState, TreeError
from ottla.model.session_lease import lease_ms
from ottla.runtime.clock import SystemClock
from ottla.runtime.posix_disk import PosixDisk, PosixFile
from ottla.testing.tree import RunningTree
from tests.contract.tree_backends import local_tree, until
from tests.eventually import eventually

TIMEOUT_MS = 2_000
LOST, SUSPENDED, CONNECTED = SessionState.LOST, SessionState.SUSPENDED, SessionState.CONNECTED


@asynccontextmanager
async def connected(path: Path, timeout_ms: int = 20_000) -> AsyncIterator[LocalSession]:
    session = await LocalBackend(path, session_timeout_ms=timeout_ms).connect()
    try:
        yield session
    finally:
        await session.close()


async def gone(observer: LocalSession, path: str) -> None:
    async with asyncio.timeout(60):
        while True:
            changed = asyncio.Event()
            if await observer.exists(path, watch=changed.set) is None:
                return
            await changed.wait()


@asynccontextmanager
async def holder_of_a_node(path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A process with the ephemeral node `/held` (paused_holder.py)."""
    command = [sys.executable, "-m", "tests.contract.paused_holder", str(path), str(TIMEOUT_MS)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).startswith(b"ready ")
        yield process, process.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_session_ends_at_once_with_its_process(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path, connected(path) as observer, holder_of_a_node(path) as (process, _):
        assert await observer.exists("/held") is not None
        process.kill()
        async with asyncio.timeout(TIMEOUT_MS / 1_000 / 2):
            await gone(observer, "/held")


async def test_process_that_resumes_after_its_session_finds_its_lease_expired_first(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path, connected(path) as observer, holder_of_a_node(path) as (process, said):
        os.kill(process.pid, signal.SIGSTOP)
        await gone(observer, "/held")
        os.kill(process.pid, signal.SIGCONT)
        async with asyncio.timeout(60):
            assert await said.readline() == b"paused expired connected\n"


async def test_session_of_a_process_whose_loop_hangs_ends(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path, connected(path) as observer, holder_of_a_node(path) as (process, said):
        os.kill(process.pid, signal.SIGUSR1)
        await gone(observer, "/held")
        assert process.stdin is not None
        process.stdin.write(b"\n")
        async with asyncio.timeout(60):
            assert await said.readline() == b"paused expired connected\n"


async def test_session_that_does_nothing_is_renewed(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path, connected(path, timeout_ms=500) as session:
        await session.create("/held", ephemeral=True)
        first_ms = session.lease.until_ms
        await until(lambda: session.lease.until_ms > first_ms + 1_000)
        assert await session.exists("/held") is not None


@pytest.fixture
def tree(tmp_path: Path) -> RunningTree:
    return RunningTree(tmp_path / "tree")


async def test_lease_holds_to_its_end_when_the_holder_of_the_tree_is_killed(tree: RunningTree) -> None:
    with tree:
        session = await LocalBackend(tree.socket, session_timeout_ms=TIMEOUT_MS).connect()
        heard: list[SessionState] = []
        session.add_session_listener(heard.append)
        tree.kill()
        await until(lambda: heard == [SUSPENDED])
        assert session.lease.until_ms > SystemClock().boottime_ms()
        with pytest.raises(ConnectionLoss):
            await session.create("/a")
        until_ms = session.lease.until_ms
        await until(lambda: heard == [SUSPENDED, LOST])
        # The loop's timer is as exact as a millisecond.
        assert SystemClock().boottime_ms() >= until_ms - 1
        with pytest.raises(SessionLost):
            await session.create("/a")
        await session.close()


async def test_next_holder_serves_when_no_lease_of_the_killed_one_holds_and_has_its_tree(tree: RunningTree) -> None:
    with tree:
        keeper = await SessionKeeper.open(LocalBackend(tree.socket, session_timeout_ms=TIMEOUT_MS))
        first_id = keeper.session_id
        await keeper.create("/kept", b"x")
        await keeper.create("/held", ephemeral=True)
        tree.kill()
        killed_ms = SystemClock().boottime_ms()
        heard: list[SessionState] = []
        keeper.add_session_listener(heard.append)
        await asyncio.to_thread(tree.start)
        assert SystemClock().boottime_ms() >= killed_ms + lease_ms(TIMEOUT_MS)
        await until(lambda: CONNECTED in heard)
        assert keeper.session_id > first_id
        assert (await keeper.get("/kept")).data == b"x"
        assert await keeper.exists("/held") is None
        await keeper.close()


async def test_holder_that_was_stopped_after_its_sessions_starts_at_once(tree: RunningTree) -> None:
    with tree:
        async with connected(tree.socket, timeout_ms=60_000) as session:
            await session.create("/a")
        tree.stop()
        assert not (tree.data_dir / "tree-sessions").exists()
        before_ms = SystemClock().boottime_ms()
        await asyncio.to_thread(tree.start)
        assert SystemClock().boottime_ms() < before_ms + lease_ms(60_000)


async def test_leases_of_another_run_of_the_machine_are_not_awaited(tree: RunningTree) -> None:
    tree.data_dir.mkdir()
    (tree.data_dir / "tree-sessions").write_text(json.dumps({"boot_id": "another", "timeout_ms": 60_000}))
    before_ms = SystemClock().boottime_ms()
    with tree:
        assert SystemClock().boottime_ms() < before_ms + lease_ms(60_000)


async def test_paused_holder_ends_no_session_that_lived_when_it_was_paused(tree: RunningTree) -> None:
    with tree:
        async with connected(tree.socket, timeout_ms=20_000) as session:
            await session.create("/held", ephemeral=True)
            async with connected(tree.socket, timeout_ms=TIMEOUT_MS) as short:
                tree.pause()
                await until(lambda: short.lease.until_ms < SystemClock().boottime_ms())
                tree.resume()
                await short.create("/after")
                assert short.state is CONNECTED
            assert await session.exists("/held") is not None


async def test_server_that_is_always_late_ends_a_silent_session(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    def delay() -> None:
        time.sleep(0.25)
        loop.call_later(0.01, delay)

    async with local_tree(tmp_path) as path, connected(path) as observer, holder_of_a_node(path) as (process, _):
        os.kill(process.pid, signal.SIGSTOP)
        delay()
        await gone(observer, "/held")


async def test_socket_lies_deeper_than_an_address_has_room_for(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with local_tree(deep) as path, connected(path) as session:
        await session.create("/a")


async def test_socket_is_its_owners_alone(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path:
        assert path.stat().st_mode & 0o777 == 0o600


async def test_missing_holder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TreeUnreachable, match=r"no process serves the tree at .*tree\.socket"):
        await LocalBackend(tmp_path / "tree.socket").connect()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        Message({"id": 1, "call": "get", "path": "/"}).encode(),
        Message({"call": "open"}).encode(),
        b"\xff\xff\xff\xff",
    ],
)
async def test_connection_that_sends_something_else_is_closed_and_others_are_served(
    tmp_path: Path, sent: bytes
) -> None:
    async with local_tree(tmp_path) as path, connected(path) as session:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        await session.create("/a")


async def test_session_of_another_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(Message({"id": 1, "call": "open", "version": 99, "timeout_ms": 1}).encode())
        async with asyncio.timeout(10):
            response = decode(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big")))
        assert response.fields["text"] == "its messages are of version 1, and 99 was demanded"
        writer.close()
        await writer.wait_closed()


async def test_many_large_nodes_are_read_in_several_messages(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path, connected(path) as session:
        paths = [f"/n{number}" for number in range(6)]
        for each in paths:
            await session.create(each, each.encode() * 200_000)
        nodes = await session.get_many([*paths, "/missing"])
        assert [node and node.data[:3] for node in nodes] == [*(each.encode() for each in paths), None]


class FullDisk(PosixDisk):
    """Has no room for the first file."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals_count = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> PosixFile:
        if create and not self.refusals_count:
            self.refusals_count += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open(path, create=create, read_only=read_only)


async def test_no_session_begins_before_the_mark_of_sessions_is_written(tmp_path: Path) -> None:
    async with local_tree(tmp_path, disk=FullDisk()) as path:
        with pytest.raises(TreeUnreachable) as refused:
            await LocalBackend(path).connect()
        assert "No space left on device" in str(refused.value.hint)
        async with connected(path):
            assert (tmp_path / "tree-sessions").exists()


async def test_session_lives_while_a_write_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_commit, commit = threading.Event(), Journal.commit

    def commit_later(journal: Journal, entry: JournalEntry) -> None:
        assert may_commit.wait(60)
        commit(journal, entry)

    async with local_tree(tmp_path) as path, connected(path, timeout_ms=500) as session:
        await session.create("/a")
        monkeypatch.setattr(Journal, "commit", commit_later)
        writing = asyncio.ensure_future(session.create("/b"))
        begun_ms = session.lease.until_ms
        await until(lambda: session.lease.until_ms > begun_ms + 1_500)
        assert session.state is CONNECTED
        may_commit.set()
        await writing


async def test_calls_of_a_session_that_closes_under_a_paused_holder_are_not_cancelled(tree: RunningTree) -> None:
    with tree:
        session = await LocalBackend(tree.socket, session_timeout_ms=60_000).connect()
        tree.pause()
        writing = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(ConnectionLoss):
            await writing
        tree.resume()


async def test_lease_of_a_connection_that_the_server_breaks_is_awaited(tmp_path: Path) -> None:
    async with local_tree(tmp_path) as path, connected(path) as observer:
        holder = await LocalBackend(path, session_timeout_ms=TIMEOUT_MS).connect()
        await holder.create("/held", ephemeral=True)
        assert holder._transport is not None
        holder._transport.write(b"\x00\x00\x00\x04\x00\x00\x00\x09")
        await gone(observer, "/held")
        assert holder.lease.until_ms <= SystemClock().boottime_ms()
        await holder.close()


async def test_holder_whose_file_fails_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holding = asyncio.ensure_future(hold(tmp_path))
    await until((tmp_path / SOCKET_FILE).exists)
    session = await LocalBackend(tmp_path / SOCKET_FILE).connect()

    def fail(journal: Journal, entry: JournalEntry) -> None:
        raise TreeStoreFailed(journal.path, "the disk does not answer")

    monkeypatch.setattr(Journal, "commit", fail)
    with pytest.raises(TreeError):
        await session.create("/a")
    assert await holding == 1
    await session.close()


def test_two_holders_of_one_directory_are_refused(tree: RunningTree) -> None:
    with tree:
        second = RunningTree(tree.data_dir)
        with pytest.raises(Exception, match="is in use by process"):
            second.start()
        assert eventually(lambda: tree.is_running)

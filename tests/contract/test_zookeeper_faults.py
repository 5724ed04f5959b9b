"""Servers that crash, freeze and come back, sessions that expire, processes that are paused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from ottla.coordination.tree import (
    ANY_VERSION,
    BadVersion,
    ConnectionLoss,
    SessionLost,
    SessionState,
    Tree,
)
from ottla.coordination.zookeeper.backend import ZooKeeperBackend, ZooKeeperKeeper
from ottla.coordination.zookeeper.session import ZooKeeperSession
from ottla.runtime.clock import SystemClock
from ottla.testing.zookeeper import SESSION_TIMEOUT_MS_MAX, RunningEnsemble, RunningZooKeeper
from tests.contract.test_tree_contract import until_gone
from tests.contract.tree_backends import until
from tests.zookeeper_or_skip import skips_without_zookeeper

SESSION_TIMEOUT_MS = 3_000
# A busy machine may take long to start a server again: sessions that must survive that have the longest time-out.
LONG_SESSION_MS = SESSION_TIMEOUT_MS_MAX
CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


@pytest.fixture
def server() -> Iterator[RunningZooKeeper]:
    """One that the test may stop."""
    with skips_without_zookeeper(), RunningZooKeeper() as running:
        yield running


def home_of(connect: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> ZooKeeperBackend:
    return ZooKeeperBackend(connect, session_timeout_ms=session_timeout_ms, connection_timeout_ms=60_000)


@asynccontextmanager
async def connected(connect: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> AsyncIterator[ZooKeeperSession]:
    session = await home_of(connect, session_timeout_ms).connect()
    try:
        yield session
    finally:
        await session.close()


def states_of(tree: Tree) -> list[SessionState]:
    heard: list[SessionState] = []
    tree.add_session_listener(heard.append)
    return heard


def lease_holds(tree: Tree) -> bool:
    return SystemClock().boottime_ms() < tree.lease.until_ms


async def in_thread(work: Callable[[], object]) -> None:
    """Servers are started and stopped in threads beside the running loop."""
    await asyncio.get_running_loop().run_in_executor(None, work)


async def test_session_and_its_nodes_survive_a_crash_of_the_server(server: RunningZooKeeper) -> None:
    async with connected(f"{server.connect}/a", LONG_SESSION_MS) as session:
        heard, watched = states_of(session), asyncio.Event()
        session_id = session.session_id
        await session.create("/alive", b"1", ephemeral=True)
        await session.create("/kept", b"2")
        await session.get("/kept", watch=watched.set)
        await in_thread(server.kill)
        await until(lambda: heard == [SUSPENDED])
        await watched.wait()
        reading = asyncio.ensure_future(session.get_many(["/alive", "/kept"]))
        writing = [asyncio.ensure_future(session.set("/kept", b"%d" % n, n)) for n in range(5)]
        await asyncio.sleep(0)
        await in_thread(server.start)
        assert [node and node.data for node in await reading] == [b"1", b"2"]
        assert [stat.version for stat in await asyncio.gather(*writing)] == [1, 2, 3, 4, 5]
        await until(lambda: heard == [SUSPENDED, CONNECTED])
        assert session.session_id == session_id
        await until(lambda: lease_holds(session))


async def test_write_under_way_at_a_crash_has_an_unknown_outcome(server: RunningZooKeeper) -> None:
    async with connected(server.connect, LONG_SESSION_MS) as session:
        await session.create("/a", b"0")
        server.pause()
        writing = asyncio.ensure_future(session.set("/a", b"1", 0))
        reading = asyncio.ensure_future(session.get("/a"))
        await asyncio.sleep(0)
        await in_thread(server.kill)
        for call in (writing, reading):
            with pytest.raises(ConnectionLoss) as failure:
                await call
            assert failure.value.path == "/a"
        await in_thread(server.start)
        await session.sync()
        node = await session.get("/a")
        assert (node.data, node.stat.version) in {(b"0", 0), (b"1", 1)}
        await session.set("/a", b"2", node.stat.version)


async def test_calls_wait_a_bounded_time_for_a_server_that_is_down(server: RunningZooKeeper) -> None:
    async with connected(server.connect, 1_000) as session:
        heard = states_of(session)
        await in_thread(server.kill)
        await until(lambda: heard == [SUSPENDED])
        for call in (session.get("/"), session.create("/never"), session.sync()):
            with pytest.raises(ConnectionLoss):
                await call
        assert not lease_holds(session)
        await in_thread(server.start)
        async with connected(server.connect, 20_000) as other:
            assert await other.exists("/never") is None


async def test_lease_ends_before_the_session_when_the_server_freezes(server: RunningZooKeeper) -> None:
    async with connected(server.connect) as session:
        heard = states_of(session)
        await session.create("/alive", ephemeral=True)
        server.pause()
        until_ms = session.lease.until_ms
        frozen_ms = SystemClock().boottime_ms()
        assert until_ms <= frozen_ms + SESSION_TIMEOUT_MS * 2 // 3
        await until(lambda: heard == [SUSPENDED])  # a silent server is left before the session is over
        assert SystemClock().boottime_ms() < frozen_ms + 10_000
        await until(lambda: not lease_holds(session))
        assert session.lease.until_ms <= frozen_ms + SESSION_TIMEOUT_MS * 2 // 3
        server.resume()
        await until(lambda: heard[-1] in {CONNECTED, LOST})


async def paused_holder(connect: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    command = [sys.executable, "-m", "tests.contract.paused_holder", connect, str(SESSION_TIMEOUT_MS)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"ready ")
    return process, process.stdout


async def test_process_that_resumes_after_its_session_finds_its_lease_expired_first(connect: str) -> None:
    async with connected(connect, 20_000) as observer:
        process, said = await paused_holder(connect)
        try:
            os.kill(process.pid, signal.SIGSTOP)
            await until_gone(observer, "/held")
            os.kill(process.pid, signal.SIGCONT)
            async with asyncio.timeout(60):
                assert await said.readline() == b"paused expired connected\n"
        finally:
            with contextlib.suppress(ProcessLookupError):  # it ends after its last line without a signal
                process.kill()
            await process.wait()


async def test_session_of_a_process_whose_loop_hangs_ends_although_its_other_threads_run(connect: str) -> None:
    async with connected(connect, 20_000) as observer:
        process, said = await paused_holder(connect)
        try:
            os.kill(process.pid, signal.SIGUSR1)
            await until_gone(observer, "/held")
            assert process.stdin is not None
            process.stdin.write(b"\n")
            async with asyncio.timeout(60):
                assert await said.readline() == b"paused expired connected\n"
        finally:
            with contextlib.suppress(ProcessLookupError):  # it ends after its last line without a signal
                process.kill()
            await process.wait()


async def test_expired_session_is_lost_for_good(server: RunningZooKeeper) -> None:
    async with connected(server.connect) as session, connected(server.connect, 20_000) as other:
        heard, watched = states_of(session), asyncio.Event()
        await session.create("/alive", ephemeral=True)
        await session.children("/", watch=watched.set)
        await home_of(server.connect).end_session(session.credentials)
        await until(lambda: LOST in heard)
        await watched.wait()
        assert session.lease.until_ms == 0
        assert await other.exists("/alive") is None
        with pytest.raises(SessionLost):
            await session.create("/again")
        assert heard[-1] is LOST


@asynccontextmanager
async def kept(connect: str) -> AsyncIterator[ZooKeeperKeeper]:
    keeper = await ZooKeeperKeeper.open(home_of(connect))
    try:
        yield keeper
    finally:
        await keeper.close()


async def test_session_that_is_ahead_of_its_server_is_reported_with_a_hint(
    server: RunningZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    def lose_its_data() -> None:
        server.stop()
        shutil.rmtree(server.data_dir / "data")
        server.start()

    def reported() -> list[str]:
        return [str(vars(record)) for record in caplog.records if record.getMessage() == "session.not_continued"]

    async with connected(server.connect) as session:
        await session.create("/seen")
        await in_thread(lose_its_data)
        await until(lambda: any("has lost data" in line for line in reported()))
        assert "restore a copy" in reported()[-1]
        assert len(reported()) <= 2, "the first may report a refused connection"
        assert session.state is SUSPENDED
        assert not lease_holds(session)


async def test_keeper_starts_the_next_session_after_a_lost_one(connect: str) -> None:
    async with kept(connect) as keeper:
        heard = states_of(keeper)
        lease, first_id, credentials = keeper.lease, keeper.session_id, keeper.credentials
        assert credentials is not None
        assert credentials.session_id == first_id
        await keeper.create("/alive", ephemeral=True)
        watched = asyncio.Event()
        await keeper.get("/alive", watch=watched.set)
        leases: list[int] = []
        refusals: list[bool] = []

        def on_lost(state: SessionState) -> None:
            if state is LOST:
                leases.append(lease.until_ms)
                refusals.append(keeper.state is LOST)

        keeper.add_session_listener(on_lost)
        await home_of(connect).end_session(credentials)
        await until(lambda: heard[-1:] == [CONNECTED] and LOST in heard)
        await watched.wait()
        assert leases == [0]
        assert refusals == [True]
        assert keeper.session_id != first_id
        assert keeper.lease is lease
        assert lease_holds(keeper)
        assert await keeper.exists("/alive") is None
        await keeper.create("/alive", ephemeral=True)
        assert (await keeper.get("/alive")).stat.ephemeral_owner == keeper.session_id
    assert keeper.state is LOST
    assert lease.until_ms == 0


async def test_keeper_without_a_session_refuses_and_recovers_with_the_server(server: RunningZooKeeper) -> None:
    async with kept(server.connect) as keeper:
        heard = states_of(keeper)
        credentials = keeper.credentials
        assert credentials is not None
        await keeper.create("/kept", b"1")
        await home_of(server.connect).end_session(credentials)
        await in_thread(server.kill)
        await in_thread(server.start)
        await until(lambda: LOST in heard)
        await until(lambda: heard[-1] is CONNECTED)
        assert (await keeper.get("/kept")).data == b"1"
        assert [state for state in heard if state is LOST] == [LOST]


async def test_closed_keeper_starts_no_session(connect: str) -> None:
    async with kept(connect) as keeper:
        heard = states_of(keeper)
    await until(lambda: heard == [LOST])
    for call in (keeper.get("/"), keeper.multi([]), keeper.sync(), keeper.get_many([])):
        with pytest.raises(SessionLost):
            await call
    assert keeper.credentials is None


class Counter:
    """Counts a node up by compare-and-set, as leaders change states: after an unknown outcome it reads first."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree = tree
        self._path = path
        self.acknowledged = 0
        self.version = 0
        self.is_stopped = False

    async def run(self) -> None:
        while not self.is_stopped:
            try:
                stat = await self._tree.set(self._path, b"%d" % (self.version + 1), self.version)
            except (ConnectionLoss, BadVersion, SessionLost) as error:
                if isinstance(error, BadVersion):
                    raise AssertionError(f"{self._path}: another wrote, or an old write took effect late") from error
                self.version = await self._present_version()
            else:
                self.version = self.acknowledged = stat.version

    async def _present_version(self) -> int:
        while True:
            try:
                await self._tree.sync()
                node = await self._tree.get(self._path)
            except (ConnectionLoss, SessionLost):
                await asyncio.sleep(0)
                continue
            assert node.stat.version in (self.version, self.version + 1)
            assert node.data == b"%d" % node.stat.version
            return node.stat.version


async def count_through(tree: Tree, faults: Callable[[list[Counter]], AsyncIterator[None]]) -> None:
    """Counters run during the faults; a fault is over when all counters have advanced since."""
    counters = [Counter(tree, f"/counter-{number}") for number in range(4)]
    for number in range(4):
        await tree.create(f"/counter-{number}", b"0")
    running = [asyncio.ensure_future(counter.run()) for counter in counters]
    try:
        async for _ in faults(counters):
            goals = [counter.acknowledged + 5 for counter in counters]
            await until_reached(running, counters, goals)
    finally:
        for counter in counters:
            counter.is_stopped = True
        await asyncio.gather(*running)
    for number, counter in enumerate(counters):
        node = await tree.get(f"/counter-{number}")
        assert node.stat.version >= counter.acknowledged
        assert node.data == b"%d" % node.stat.version


async def until_reached(running: Sequence[asyncio.Future[None]], counters: list[Counter], goals: list[int]) -> None:
    """Fails at once when a counter does."""
    async with asyncio.timeout(60):
        while any(counter.acknowledged < goal for counter, goal in zip(counters, goals, strict=True)):
            done, _ = await asyncio.wait(running, timeout=0.01)
            for each in done:
                each.result()


async def test_nothing_acknowledged_is_lost_and_nothing_takes_effect_late_while_a_server_crashes(
    server: RunningZooKeeper,
) -> None:
    async def faults(counters: list[Counter]) -> AsyncIterator[None]:
        yield
        for _ in range(3):
            await in_thread(server.kill)
            await in_thread(server.start)
            yield
        server.pause()
        await in_thread(lambda: server.ask("ruok", timeout_s=0.3))
        server.resume()
        yield

    async with kept(server.connect) as keeper:
        await count_through(keeper, faults)


async def test_writes_continue_when_an_ensemble_loses_its_leader() -> None:
    with skips_without_zookeeper():
        ensemble = RunningEnsemble()

    async def faults(counters: list[Counter]) -> AsyncIterator[None]:
        yield
        await in_thread(lambda: ensemble.leader().kill())
        yield
        await in_thread(ensemble.start)
        yield

    with ensemble:
        async with kept(f"{ensemble.connect}/ottla") as keeper:
            session_id, heard = keeper.session_id, states_of(keeper)
            await keeper.create("/alive", ephemeral=True)
            await count_through(keeper, faults)
            if LOST not in heard:
                assert keeper.session_id == session_id
                assert await keeper.exists("/alive") is not None
            await until(lambda: lease_holds(keeper))
            await keeper.set("/counter-0", b"", ANY_VERSION)
            await keeper.sync()

"""A broker moves the generation of its data directory: in the directory first, then in the tree."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.tree.broker_lifecycle import BrokerLifecycle
from ottla.broker.tree.directory_generation import MOVE_INTERVAL_MS, PAUSE_MS, DirectoryGeneration
from ottla.coordination.embedded.backend import EmbeddedBackend, EmbeddedSession
from ottla.coordination.generations import SeenGeneration, read_generation
from ottla.coordination.layout import lay_out
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.coordination.tree import ConnectionLoss, Operation, Stat
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from ottla.runtime.offload import INLINE
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity
from ottla.storage.directory.log_completeness import LogCompleteness
from ottla.storage.errors import StaleDirectory, StorageError
from ottla.testing.memory_disk import MemoryDisk
from tests.unit.broker.turned_loop import TurnedLoop

OWN = NodeId(3)


class LossyTree:
    """A session whose next request breaks its connection: before it is applied, or after."""

    def __init__(self, session: EmbeddedSession) -> None:
        self.session = session
        self.loses_before = self.loses_after = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        if self.loses_before:
            raise ConnectionLoss("/brokers/generations/3")
        results = await self.session.multi(operations)
        if self.loses_after:
            raise ConnectionLoss("/brokers/generations/3")
        return results


class TaskLoop(TurnedLoop):
    """Timers are turned by hand; tasks run on the real loop."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[asyncio.Task[None]] = []

    def create_task(self, coro: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self.tasks.append(task)
        return task

    async def pass_ms(self, time_ms: int) -> None:
        self.advance(time_ms / 1000)
        for task in self.tasks:
            await task


class Broker:
    """One life of a broker on its disk."""

    def __init__(self, tree: LossyTree, disk: MemoryDisk, make_room: Callable[[], bool] = lambda: False) -> None:
        self.tree, self.disk = tree, disk
        self.loop = TaskLoop()
        self.lifecycle = BrokerLifecycle(OWN)
        self.stored = 0
        self.generation = DirectoryGeneration(
            tree,
            self.lifecycle,
            disk,
            "/data",
            make_room,
            self.loop,  # type: ignore[arg-type]
            lambda: INLINE,
        )

    async def begin(self) -> None:
        """Check, register, and serve."""
        await self.generation.check()
        await self.tree.multi(list(await self.generation.write()))
        await LogCompleteness(self.disk, "/data", has_logs=False).set_complete_from(100)
        self.lifecycle.registered(100)
        self.generation.start(lambda: self.stored)

    @property
    def held(self) -> int:
        return checkpoints.read_generation(self.disk, "/data")

    async def seen(self) -> SeenGeneration:
        found = (await read_generation(self.tree.session, OWN)).seen
        assert found is not None
        return found

    async def counts(self) -> tuple[int, int]:
        return self.held, (await self.seen()).generation


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/data")
    directory_identity.check_or_write(disk, "/data", OWN, "cluster")
    return disk


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    copy = MemoryDisk()
    copy.make_directory("/data")
    for name in disk.list_directory("/data"):
        file = disk.open(f"/data/{name}", read_only=True)
        content = file.read_at(0, file.size_bytes())
        target = copy.open(f"/data/{name}", create=True)
        target.write_at(0, content)
    return copy


@asynccontextmanager
async def open_tree(path: Path) -> AsyncIterator[LossyTree]:
    home = await EmbeddedBackend.open(str(path / "tree"))
    session = await home.connect()
    await lay_out(session)
    yield LossyTree(session)
    await home.close()


def view_of(version: int, *in_sync: int) -> TopicsView:
    members = tuple(ReplicaIncarnation(NodeId(each), 100) for each in in_sync)
    state = PartitionState(NodeId(1), LeaderEpoch(1), members)
    partition = PartitionNode(0, (NodeId(1), NodeId(2), OWN), state, version)
    return TopicsView.of(version, {"orders": Topic("orders", UUID(int=1), (partition,))})


async def test_each_start_raises_both_and_a_copy_of_an_earlier_life_is_refused(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        disk = new_disk()
        await Broker(tree, disk).begin()
        copy = copy_of(disk)
        second = Broker(tree, disk)
        await second.begin()
        held, seen = await second.counts()
        assert held == seen == checkpoints.read_generation(copy, "/data") + 1
        before = {name: copy.open(f"/data/{name}").read_at(0, 10_000) for name in copy.list_directory("/data")}
        with pytest.raises(StaleDirectory, match="is a copy of an earlier time: its generation is 1") as caught:
            await Broker(tree, copy).generation.check()
        assert "ottla cluster rejoin --data-dir /data" in (caught.value.hint or "")
        after = {name: copy.open(f"/data/{name}").read_at(0, 10_000) for name in copy.list_directory("/data")}
        assert after == before
        assert await second.counts() == (held, seen)


async def test_copy_of_the_same_life_is_refused_once_the_generation_has_moved(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.begin()
        copy = copy_of(broker.disk)
        broker.stored += 1
        await Broker(tree, copy_of(copy)).generation.check()  # the window that is left
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        with pytest.raises(StaleDirectory):
            await Broker(tree, copy).generation.check()
        await Broker(tree, copy_of(broker.disk)).generation.check()


async def test_nothing_is_written_while_nothing_is_stored(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.begin()
        broker.stored += 1
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        counts = await broker.counts()
        for _ in range(3):
            await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        assert await broker.counts() == counts


async def test_change_of_an_in_sync_set_moves_soon(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.begin()
        first = await broker.counts()
        broker.generation.on_view(view_of(1, 1, 2))
        await broker.loop.pass_ms(PAUSE_MS)
        assert await broker.counts() == first, "it is not in that set"
        broker.generation.on_view(view_of(2, 1, 2, 3))
        await broker.loop.pass_ms(PAUSE_MS)
        joined = await broker.counts()
        assert joined == (first[0] + 1, first[1] + 1)
        broker.generation.on_view(view_of(3, 1, 2, 3))
        await broker.loop.pass_ms(PAUSE_MS)
        assert await broker.counts() == joined, "the same members"
        broker.generation.on_view(view_of(4, 1, 3))
        await broker.loop.pass_ms(PAUSE_MS)
        assert await broker.counts() == (joined[0] + 1, joined[1] + 1)


async def test_directory_is_never_below_the_tree_whatever_becomes_of_a_move(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.begin()
        for tree.loses_before, tree.loses_after in ((True, False), (False, True), (True, False), (False, False)):
            broker.stored += 1
            await broker.loop.pass_ms(MOVE_INTERVAL_MS)
            held, seen = await broker.counts()
            assert held >= seen
            await Broker(LossyTree(tree.session), copy_of(broker.disk)).generation.check()
        assert held == seen, "the last one came through"


async def test_move_that_failed_is_made_again_although_nothing_more_is_stored(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.begin()
        copy = copy_of(broker.disk)
        broker.stored += 1
        tree.loses_before = True
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        tree.loses_before = False
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        with pytest.raises(StaleDirectory):
            await Broker(tree, copy).generation.check()


@pytest.mark.parametrize("reason", ["in-sync set", "full disk"])
async def test_move_that_failed_is_made_again_although_it_was_due_for_no_record(tmp_path: Path, reason: str) -> None:
    async with open_tree(tmp_path) as tree:
        disk = FullDisk()
        disk.make_directory("/data")
        directory_identity.check_or_write(disk, "/data", OWN, "cluster")
        broker = Broker(tree, disk)
        await broker.begin()
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        if reason == "in-sync set":
            broker.generation.on_view(view_of(1, 1, 2, 3))
        else:
            disk.is_full = True
            await broker.generation.write()
            disk.is_full = False
        before = (await broker.seen()).generation
        tree.loses_before = True
        for _ in range(3):
            await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        assert (await broker.seen()).generation == before
        tree.loses_before = False
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        held, seen = await broker.counts()
        assert held == seen > before
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        assert await broker.counts() == (held, seen)


async def test_ordered_stop_moves_for_the_last_time(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.begin()
        copy = copy_of(broker.disk)
        broker.stored += 1
        await broker.generation.stop()
        with pytest.raises(StaleDirectory):
            await Broker(tree, copy).generation.check()
        await Broker(tree, copy_of(broker.disk)).generation.check()


async def test_broker_that_was_never_registered_moves_nothing_when_it_stops(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        broker = Broker(tree, new_disk())
        await broker.generation.check()
        await broker.generation.stop()
        assert broker.held == 0


async def test_new_disk_takes_over_and_the_former_one_is_refused(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        former = Broker(tree, new_disk())
        await former.begin()
        tree.loses_before = True
        former.stored += 1
        await former.loop.pass_ms(MOVE_INTERVAL_MS)
        tree.loses_before = False
        latter = Broker(tree, new_disk())
        await latter.begin()
        assert (await latter.seen()).generation == latter.held
        with pytest.raises(StaleDirectory, match="is not the data directory that broker 3 used last"):
            await Broker(tree, copy_of(former.disk)).generation.check()


async def test_accepted_copy_takes_over_and_the_directory_that_it_replaces_is_refused(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        disk = new_disk()
        await Broker(tree, disk).begin()
        copy = copy_of(disk)
        newest = Broker(tree, disk)
        await newest.begin()
        directory_identity.accept_stale(copy, "/data")
        accepted = Broker(tree, copy)
        await accepted.begin()
        assert accepted.held > newest.held
        with pytest.raises(StaleDirectory):
            await Broker(tree, copy_of(disk)).generation.check()
        await Broker(tree, copy).begin()


async def test_broker_that_another_directory_replaced_meanwhile_cannot_register_again(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        disk = new_disk()
        cut_off = Broker(tree, disk)
        await cut_off.begin()
        await Broker(tree, new_disk()).begin()
        held = cut_off.held
        cut_off.stored += 1
        await cut_off.loop.pass_ms(MOVE_INTERVAL_MS)
        with pytest.raises(StaleDirectory):
            await cut_off.generation.write()
        assert cut_off.held == held


class FullDisk(MemoryDisk):
    """Has no room for a generation while it `is_full`."""

    is_full = False

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        if self.is_full and path.endswith("/generation.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create, read_only=read_only)


async def test_full_disk_does_not_keep_a_broker_from_registering(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        disk = FullDisk()
        disk.make_directory("/data")
        directory_identity.check_or_write(disk, "/data", OWN, "cluster")
        broker = Broker(tree, disk)
        await broker.begin()
        disk.is_full = True
        assert await broker.generation.write() == ()
        disk.is_full = False
        before = await broker.counts()
        await broker.loop.pass_ms(MOVE_INTERVAL_MS)
        assert await broker.counts() == (before[0] + 1, before[1] + 1)


async def test_full_disk_gets_its_reserve_for_a_generation(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        disk = FullDisk()
        disk.make_directory("/data")
        directory_identity.check_or_write(disk, "/data", OWN, "cluster")
        disk.is_full = True

        def make_room() -> bool:
            disk.is_full = False
            return True

        broker = Broker(tree, disk, make_room)
        await broker.begin()
        assert await broker.counts() == (1, 1)


async def test_new_directory_that_cannot_be_written_does_not_register(tmp_path: Path) -> None:
    async with open_tree(tmp_path) as tree:
        disk = FullDisk()
        disk.make_directory("/data")
        directory_identity.check_or_write(disk, "/data", OWN, "cluster")
        disk.is_full = True
        with pytest.raises(StorageError, match="the generation of /data cannot be recorded"):
            await Broker(tree, disk).begin()

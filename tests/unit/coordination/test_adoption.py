"""The tree of a standalone broker is moved whole, once, and again after every interruption."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.coordination import layout
from ottla.coordination.adoption import AdoptionDiffers, TreeNotEmpty, adopt, finish, is_under_way
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.configs import ConfigRegistry
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.layout import lay_out
from ottla.coordination.producer_ids import ProducerIdBlocks
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import ConnectionLoss, Operation, Stat, Tree
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import NO_BROKER_EPOCH

HERE = NodeId(4)


class InterruptedTree:
    """A tree whose writes fail from a certain one on: `happens` says whether that one is made before it fails."""

    def __init__(self, tree: Tree, writes_count: int, *, happens: bool) -> None:
        self._tree = tree
        self._left = writes_count
        self._happens = happens

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        stats: list[Stat | None] = await self._write(self._tree.multi(operations))
        return stats

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._write(self._tree.create(path, data, ephemeral=ephemeral))

    async def _write(self, write: Any) -> Any:
        self._left -= 1
        if self._left >= 0:
            return await write
        if self._happens:
            await write
        else:
            write.close()
        raise ConnectionLoss("/")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)


@asynccontextmanager
async def trees(path: Path) -> AsyncIterator[tuple[Tree, Tree]]:
    """A tree with two topics, and an empty one."""
    homes = [await EmbeddedBackend.open(str(path / name)) for name in ("source", "target")]
    source, target = [await home.connect() for home in homes]
    await lay_out(source)
    registry = TopicRegistry(source)
    await registry.create("orders", [[HERE]] * 3, {HERE: 77}, {"retention.ms": "1000"})
    await registry.create("clicks", [[HERE]], {HERE: 77})
    await ProducerIdBlocks(source, HERE).next()
    try:
        yield source, target
    finally:
        for home in homes:
            await home.close()


async def content(tree: Tree) -> tuple[object, ...]:
    """What a broker reads."""
    topics = await TopicRegistry(tree).refresh()
    return (
        {
            name: (topic.topic_id, [(each.replicas, each.state.leader_epoch) for each in topic.partitions])
            for name, topic in topics.by_name.items()
        },
        (await ConfigRegistry(tree).refresh()).topic("orders"),
        await cluster_id(tree),
    )


async def adopted(source: Tree, target: Tree) -> int:
    count = await adopt(source, target, await cluster_id(source))
    await finish(target)
    return count


async def test_everything_is_in_the_other_tree(tmp_path: Path) -> None:
    async with trees(tmp_path) as (source, target):
        before = await content(source)
        assert await adopted(source, target) > 20
        assert not await is_under_way(target)
        await lay_out(target)
        assert await content(target) == before
        first = await ProducerIdBlocks(source, HERE).next()
        assert await ProducerIdBlocks(target, HERE).next() == first


async def test_states_name_no_life_that_a_session_of_the_target_could_have(tmp_path: Path) -> None:
    async with trees(tmp_path) as (source, target):
        await adopted(source, target)
        states = [each.state for _, each in (await TopicRegistry(target).refresh()).partitions()]
        assert {state.leader for state in states} == {HERE}
        assert {member for state in states for member in state.in_sync} == {(HERE, NO_BROKER_EPOCH)}


async def test_registrations_are_not_moved(tmp_path: Path) -> None:
    async with trees(tmp_path) as (source, target):
        await source.create(layout.broker_path(HERE), b"{}", ephemeral=True)
        await adopted(source, target)
        assert await target.children(layout.BROKER_IDS) == []


async def test_tree_is_not_open_to_brokers_until_it_is_finished(tmp_path: Path) -> None:
    async with trees(tmp_path) as (source, target):
        await adopt(source, target, await cluster_id(source))
        assert await is_under_way(target)
        await finish(target)
        await finish(target)
        assert not await is_under_way(target)


async def test_tree_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with trees(tmp_path) as (source, target):
        await target.create("/mine", b"kept")
        with pytest.raises(TreeNotEmpty, match="/mine"):
            await adopted(source, target)
        assert await target.children("/") == ["mine"]


async def test_adoption_of_another_cluster_is_not_continued(tmp_path: Path) -> None:
    async with trees(tmp_path) as (source, target):
        await adopt(source, target, await cluster_id(source))
        with pytest.raises(TreeNotEmpty, match="another-cluster"):
            await adopt(source, target, "another-cluster")


@pytest.mark.parametrize("happens", [False, True])
async def test_interrupted_adoption_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, happens: bool
) -> None:
    monkeypatch.setattr("ottla.coordination.tree.BATCH_BYTES_MAX", 2_000)  # several requests
    async with trees(tmp_path) as (source, target):
        before = await content(source)
        own_id = await cluster_id(source)
        interruptions = 0
        for writes_count in range(100):
            try:
                await adopt(source, InterruptedTree(target, min(writes_count, 1), happens=happens), own_id)
            except ConnectionLoss:
                interruptions += 1
            else:
                break
        assert interruptions >= 2
        await finish(target)
        await lay_out(target)
        assert await content(target) == before


async def test_node_that_another_program_changes_is_found(tmp_path: Path) -> None:
    class Meddled(InterruptedTree):
        async def sync(self) -> None:
            await target.set(layout.CLUSTER_ID, b"{}", -1)

    async with trees(tmp_path) as (source, target):
        own_id = await cluster_id(source)
        with pytest.raises(AdoptionDiffers, match=layout.CLUSTER_ID):
            await adopt(source, Meddled(target, 1_000, happens=True), own_id)
        assert await is_under_way(target)

"""Reassignments of partitions, over every home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from ottla.coordination import assignment_changes, layout
from ottla.coordination.reassignment import Reassigned, completed, requested
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_MOVE, Move, PartitionNode
from ottla.coordination.tree import Node, Stat, Tree, Watch
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId
from ottla.model.partition_state import ChangeResult, ReplicaIncarnation
from tests.contract.tree_backends import TreeBackend
from tests.contract.unsure_tree import UnsureTree

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
EPOCHS = {ONE: 101, TWO: 102, THREE: 103}
STORM_TOPICS = 20


@asynccontextmanager
async def laid_out(home: TreeBackend) -> AsyncIterator[Tree]:
    async with home.running() as running:
        tree = await running.connect()
        await layout.lay_out(tree)
        yield tree


def moved(target: Sequence[NodeId] | None, partition: PartitionNode) -> Reassigned | None:
    return requested(partition, target, EPOCHS, lambda _: 1)


def ended(partition: PartitionNode) -> Reassigned | None:
    return completed(partition, EPOCHS, lambda _: 1)


async def test_replicas_and_states_are_changed_together_and_only_those(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        writer, reader = TopicRegistry(tree), TopicRegistry(tree)
        created = await writer.create("orders", [[ONE, TWO]] * 4, EPOCHS)
        other = await writer.create("other", [[ONE]], EPOCHS)
        before = await reader.refresh()
        results = await writer.change_assignments("orders", None, [1, 3, 9], lambda p: moved([TWO, THREE], p))
        assert {index: refusal and refusal.code for index, refusal in results.items()} == {
            1: None,
            3: None,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        view = await reader.refresh()
        assert view.version == before.version + 1
        assert view.by_name["other"] == other
        partitions = view.by_name["orders"].partitions
        assert partitions[0] is before.by_name["orders"].partitions[0]
        for index in (1, 3):
            assert partitions[index].replicas == (TWO, THREE, ONE)
            assert partitions[index].move == Move((THREE,), (ONE,))
            assert partitions[index].state_version == created.partitions[index].state_version + 1
        assert (await TopicRegistry(tree).refresh()).by_name == view.by_name


async def test_state_based_on_former_replicas_is_not_written(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", [[ONE, TWO]], EPOCHS)
        await registry.change_assignments("orders", topic.topic_id, [0], lambda p: moved([ONE, TWO, THREE], p))
        (partition,) = topic.partitions
        (outcome,) = await registry.change_states([StateChange.of(topic, partition, partition.state)])
        assert outcome.result is ChangeResult.STALE


async def test_move_is_written_in_steps_and_leaves_no_nodes(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        await registry.create("orders", [[ONE, TWO]], EPOCHS)
        await registry.change_assignments("orders", None, [0], lambda p: moved([THREE], p))
        assert await registry.change_assignments("orders", None, [0], ended) == {0: None}
        topic = (await registry.refresh()).by_name["orders"]
        (partition,) = topic.partitions
        assert partition.replicas == (THREE, ONE, TWO)
        joined = (ReplicaIncarnation(THREE, 103), *partition.state.in_sync)
        await registry.change_states([StateChange.of(topic, partition, partition.state._replace(in_sync=joined))])
        assert await registry.change_assignments("orders", topic.topic_id, [0], ended) == {0: None}
        (partition,) = (await registry.refresh()).by_name["orders"].partitions
        assert (partition.replicas, partition.move) == ((THREE,), NO_MOVE)
        assert partition.state.leader == THREE
        assert partition.state.in_sync == (ReplicaIncarnation(THREE, 103),)
        assert b"adding" not in (await tree.get(layout.topic_path("orders"))).data


async def test_topic_keeps_its_moves_when_it_grows(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        await registry.create("orders", [[ONE]], EPOCHS)
        await registry.change_assignments("orders", None, [0], lambda p: moved([TWO], p))
        topic = (await registry.refresh()).by_name["orders"]
        await registry.add_partitions(topic, [[THREE]], EPOCHS)
        first, second = (await registry.refresh()).by_name["orders"].partitions
        assert (first.move, second.move) == (Move((TWO,), (ONE,)), NO_MOVE)


async def test_topic_of_another_id_or_none_is_not_changed(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        former = await registry.create("orders", [[ONE]], EPOCHS)
        await registry.delete("orders")
        for _ in range(2):
            with pytest.raises(RequestError) as refusal:
                await registry.change_assignments("orders", former.topic_id, [0], lambda p: moved([TWO], p))
            assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if "orders" not in (await registry.refresh()).by_name:
                await registry.create("orders", [[ONE]], EPOCHS)
        assert (await registry.refresh()).by_name["orders"].partitions[0].move == NO_MOVE


@pytest.mark.parametrize("drop_writes", [True, False])
async def test_change_of_unknown_outcome_is_applied_once(home: TreeBackend, drop_writes: bool) -> None:
    async with laid_out(home) as tree:
        unsure = UnsureTree(tree)
        unsure.drop_writes = drop_writes
        registry = TopicRegistry(unsure)
        created = await registry.create("orders", [[ONE]], EPOCHS)
        unsure.lose_answers = 1
        assert await registry.change_assignments("orders", None, [0], lambda p: moved([ONE, TWO], p)) == {0: None}
        unsure.lose_answers = 1
        assert await registry.change_assignments("orders", None, [0], lambda p: moved(None, p)) == {0: None}
        (partition,) = (await registry.refresh()).by_name["orders"].partitions
        assert (partition.replicas, partition.move) == ((ONE,), NO_MOVE)
        assert partition.state_version == created.partitions[0].state_version + 2


async def test_many_partitions_of_one_topic_are_moved_by_several_writers_at_once(home: TreeBackend) -> None:
    async with home.running() as running:
        trees = [await running.connect() for _ in range(3)]
        await layout.lay_out(trees[0])
        registries = [TopicRegistry(tree) for tree in trees]
        await registries[0].create("orders", [[ONE]] * 1_200, EPOCHS)
        shares = [list(range(first, 1_200, 3)) for first in range(3)]
        results = await asyncio.gather(
            *(
                registry.change_assignments("orders", None, share, lambda p: moved([ONE, TWO], p))
                for registry, share in zip(registries, shares, strict=True)
            )
        )
        assert {refusal for result in results for refusal in result.values()} == {None}
        await trees[0].sync()
        topic = (await registries[0].refresh()).by_name["orders"]
        assert {partition.replicas for partition in topic.partitions} == {(ONE, TWO)}


async def test_each_request_of_a_large_change_may_lose_as_many_races_as_any_other(
    home: TreeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment_changes, "BATCH_PARTITIONS_MAX", 2)
    monkeypatch.setattr(assignment_changes, "ATTEMPTS_MAX", 1)
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        await registry.create("orders", [[ONE]] * 5, EPOCHS)
        results = await registry.change_assignments("orders", None, range(5), lambda p: moved([TWO], p))
        assert results == dict.fromkeys(range(5))
        assert all(partition.is_moving for partition in (await registry.refresh()).by_name["orders"].partitions)


class MovedBehind(UnsureTree):
    """Applies a test's change after its next read of several nodes that starts with a topic's name."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.writers: list[TopicRegistry] = []

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes = await super().get_many(paths)
        if self.writers and list(paths) == [layout.topic_path("orders")]:
            await self.writers.pop().change_assignments("orders", None, [0], lambda p: moved([TWO], p))
        return nodes


@pytest.mark.parametrize("is_first_read", [True, False])
async def test_view_never_has_a_state_that_is_newer_than_its_replicas(home: TreeBackend, is_first_read: bool) -> None:
    async with laid_out(home) as tree:
        writer = TopicRegistry(tree)
        created = await writer.create("orders", [[ONE]], EPOCHS)
        behind = MovedBehind(tree)
        reader = TopicRegistry(behind)
        if not is_first_read:
            await reader.refresh()
            await writer.change_assignments("orders", None, [0], lambda p: moved([THREE], p))
        behind.writers.append(writer)
        (partition,) = (await reader.refresh()).by_name["orders"].partitions
        assert not behind.writers
        assert partition.replicas == (TWO, ONE)
        assert partition.state_version == created.partitions[0].state_version + (1 if is_first_read else 2)


class StormyTree(UnsureTree):
    """Another writer creates one more topic whenever its session checks for further changes."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.writer: TopicRegistry | None = None
        self.created: list[str] = []

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        if path == layout.CHANGES and self.writer is not None and len(self.created) < STORM_TOPICS:
            self.created.append(f"storm-{len(self.created)}")
            await self.writer.create(self.created[-1], [[ONE]], EPOCHS)
        return await super().exists(path, watch=watch)


async def test_view_does_not_wait_until_others_stop_creating_topics(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        writer, stormy = TopicRegistry(tree), StormyTree(tree)
        reader = TopicRegistry(stormy)
        await writer.create("orders", [[ONE]], EPOCHS)
        stormy.writer = writer
        assert set((await reader.refresh()).by_name) == {"orders"}
        assert len(stormy.created) < STORM_TOPICS
        stormy.writer = None
        assert set((await reader.refresh()).by_name) == {"orders", *stormy.created}

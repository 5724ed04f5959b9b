"""Operations of an operator on groups without a master, over every home."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import pytest

from ottla.client.consumer_registry.group_admin import GroupWritesLost, TreeGroups, read_group
from ottla.client.consumer_registry.group_nodes import BadGroupName, ConsumerNode, GroupPaths, OffsetContent
from ottla.client.consumer_registry.partition_registry import PartitionRegistry, register
from ottla.client.groups.group_types import EMPTY, STABLE, TREE, CommittedOffset, ListedGroup
from ottla.client.groups.groups import UnknownGroup
from ottla.client.groups.subscription import Subscription
from ottla.client.wire.errors import BrokerRefused
from ottla.consumers.effects import Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId
from ottla.consumers.share import StreamId
from ottla.coordination import layout
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.tree import ANY_VERSION, Operation, Stat, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET, NodeId, TopicPartition
from ottla.model.partition_state import ChangeResult
from tests.contract.tree_backends import TreeBackend
from tests.contract.unsure_tree import UnsureTree

ONE: Final = NodeId(1)
PATHS: Final = GroupPaths.of("jobs")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STREAM: Final = StreamId("a", 0)
NOW_MS: Final = 1_700_000_000_000


class Place(NamedTuple):
    """An operator's session, and one of a consumer; topic t has two partitions."""

    admin: TreeGroups
    tree: Tree
    consumer: Tree


@asynccontextmanager
async def place(home: TreeBackend) -> AsyncIterator[Place]:
    async with home.running() as running:
        tree, consumer = await running.connect(), await running.connect()
        await layout.lay_out(tree)
        await TopicRegistry(tree).create("t", [(ONE,)] * 2, {ONE: 1})
        yield Place(TreeGroups(tree, lambda: NOW_MS), tree, consumer)


async def join(at: Place, consumer_id: str = "a") -> None:
    node = ConsumerNode(Subscription({"t": 1}), "host-1", 42, "reader", NOW_MS)
    assert await register(at.consumer, PATHS, consumer_id, node) is ChangeResult.APPLIED


async def claim(at: Place, *partitions: TopicPartition) -> PartitionRegistry:
    """The consumer owns them, at version 0 of their offset nodes or the next one."""
    topic = (await TopicRegistry(at.consumer).refresh()).by_name["t"]
    registry = PartitionRegistry(at.consumer, PATHS, lambda _: topic.topic_id, lambda: NOW_MS)
    nodes = await registry.read(partitions)
    claim_id = ClaimId(at.consumer.session_id, 1)
    writes: list[Write] = []
    for partition in partitions:
        found = nodes[partition].offset
        version, offset = (NO_NODE, NO_OFFSET) if found is None else (found.version, found.offset)
        writes.append(Write(1, WriteKind.CLAIM, partition, version, offset, claim_id, STREAM))
    assert await registry.write(writes) == [ChangeResult.APPLIED] * len(writes)
    return registry


async def offset_of(at: Place, partition: TopicPartition) -> OffsetContent:
    return (await read_group(at.tree, PATHS)).offsets[partition].content


async def test_group_is_created_by_its_first_offset_and_listed_and_described(home: TreeBackend) -> None:
    async with place(home) as at:
        assert await at.admin.list_groups() == []
        assert not await at.admin.has("jobs")
        assert await at.admin.committed("jobs") == {}
        with pytest.raises(UnknownGroup, match="group jobs does not exist"):
            await at.admin.describe("jobs")
        await at.admin.commit("jobs", {T0: 7})
        assert await at.admin.list_groups() == [ListedGroup("jobs", "consumer", EMPTY, TREE)]
        assert await at.admin.committed("jobs") == {T0: CommittedOffset(7)}
        described = await at.admin.describe("jobs")
        assert (described.kind, described.state, described.is_live, described.members) == (TREE, EMPTY, False, ())


async def test_consumers_are_described_with_their_partitions(home: TreeBackend) -> None:
    async with place(home) as at:
        await join(at)
        await claim(at, T0, T1)
        described = await at.admin.describe("jobs")
        assert (described.state, described.is_live, described.problems) == (STABLE, True, ())
        (member,) = described.members
        assert (member.member_id, member.host, member.client_id) == ("a-0", "host-1", "reader")
        assert {partition: owner.member_id for partition, owner in described.owners().items()} == {T0: "a-0", T1: "a-0"}
        assert await at.admin.committed("jobs") == {}, "a claim of a partition that was never read commits nothing"


async def test_set_offset_takes_the_partition_from_its_owner(home: TreeBackend) -> None:
    async with place(home) as at:
        await join(at)
        registry = await claim(at, T0)
        await at.admin.commit("jobs", {T0: 3})
        content = await offset_of(at, T0)
        assert (content.offset, content.claim) == (3, None)
        commit = Write(2, WriteKind.COMMIT, T0, 0, 9, ClaimId(at.consumer.session_id, 1), STREAM)
        assert await registry.write([commit]) == [ChangeResult.STALE], "the owner is fenced"
        assert (await offset_of(at, T0)).offset == 3


async def test_consumers_that_watch_the_offsets_are_notified_when_one_is_set(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {T0: 3})
        before = (await at.tree.get(PATHS.offsets)).stat.version
        await at.admin.commit("jobs", {T0: 4, T1: 4})
        assert (await at.tree.get(PATHS.offsets)).stat.version == before + 1


async def test_offset_of_a_recreated_topic_does_not_count(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {T0: 7})
        await TopicRegistry(at.tree).delete("t")
        assert await at.admin.committed("jobs") == {}
        await TopicRegistry(at.tree).create("t", [(ONE,)], {ONE: 1})
        assert await at.admin.committed("jobs") == {}
        await at.admin.commit("jobs", {T0: 1})
        assert await at.admin.committed("jobs") == {T0: CommittedOffset(1)}


async def test_damaged_offset_is_reported_and_repaired_by_setting_it(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {T0: 7})
        await at.tree.set(PATHS.offset(T0), b"seven", ANY_VERSION)
        assert "/consumers/jobs/offsets/t/0" in (await at.admin.describe("jobs")).problems[0]
        await at.admin.commit("jobs", {T0: 5})
        assert await at.admin.committed("jobs") == {T0: CommittedOffset(5)}
        assert (await at.admin.describe("jobs")).problems == ()


class BusyTree(UnsureTree):
    """Before each of the next `rivals` changes of an offset, its owner commits."""

    def __init__(self, tree: Tree, commit: Callable[[], Awaitable[object]]) -> None:
        super().__init__(tree)
        self._commit = commit
        self.rivals = 0

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        if self.rivals and operations[0].path.startswith(PATHS.offset(T0)):
            self.rivals -= 1
            await self._commit()
        return await super().multi(operations)


async def test_offset_is_set_over_an_owner_that_commits_meanwhile(home: TreeBackend) -> None:
    async with place(home) as at:
        await join(at)
        await claim(at, T0)
        data = (await at.tree.get(PATHS.offset(T0))).data
        busy = BusyTree(at.tree, lambda: at.consumer.set(PATHS.offset(T0), data, ANY_VERSION))
        busy.rivals = 3
        await TreeGroups(busy, lambda: NOW_MS).commit("jobs", {T0: 2})
        assert busy.rivals == 0
        assert (await offset_of(at, T0)).offset == 2
        busy.rivals = 1_000
        with pytest.raises(GroupWritesLost, match="t-0 could not be set"):
            await TreeGroups(busy, lambda: NOW_MS).commit("jobs", {T0: 1})
        assert (await offset_of(at, T0)).offset == NO_OFFSET, "the owner's own"


async def test_deleted_offset_leaves_a_node_whose_versions_continue(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {T0: 7, T1: 8})
        version = (await at.tree.get(PATHS.offset(T0))).stat.version
        assert await at.admin.delete_offsets("jobs", [T0]) == {T0: None}
        assert await at.admin.committed("jobs") == {T1: CommittedOffset(8)}
        assert (await at.tree.get(PATHS.offset(T0))).stat.version == version + 1


async def test_offsets_of_a_topic_with_readers_are_not_deleted(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {T0: 7})
        await join(at)
        refusal = (await at.admin.delete_offsets("jobs", [T0]))[T0]
        assert refusal is not None
        assert refusal.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert await at.admin.committed("jobs") == {T0: CommittedOffset(7)}


async def test_group_without_consumers_is_deleted_with_everything(home: TreeBackend) -> None:
    async with place(home) as at:
        await join(at)
        await claim(at, T0, T1)
        with pytest.raises(BrokerRefused, match="it has consumers") as refused:
            await at.admin.delete("jobs")
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        await at.consumer.close()
        await at.tree.sync()
        await at.admin.delete("jobs")
        assert await at.tree.children(layout.CONSUMERS) == []
        with pytest.raises(UnknownGroup):
            await at.admin.delete("jobs")


async def test_group_whose_consumer_cannot_be_read_is_not_deleted(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {T0: 7})
        await at.tree.create(PATHS.ids)
        await at.consumer.create(PATHS.consumer("stranger"), b"{}", ephemeral=True)
        with pytest.raises(BrokerRefused, match="it has consumers"):
            await at.admin.delete("jobs")
        assert await at.admin.committed("jobs") == {T0: CommittedOffset(7)}


async def test_group_with_more_nodes_than_fit_a_request_is_deleted(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.admin.commit("jobs", {TopicPartition("t", number): 1 for number in range(3_000)})
        await at.admin.delete("jobs")
        assert await at.tree.children(layout.CONSUMERS) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "näme", "x" * 250])
async def test_name_that_is_no_path_segment_is_no_group_and_creates_none(home: TreeBackend, name: str) -> None:
    async with place(home) as at:
        assert not await at.admin.has(name)
        with pytest.raises(UnknownGroup):
            await at.admin.describe(name)
        with pytest.raises(BadGroupName):
            await at.admin.commit(name, {T0: 1})


async def test_nodes_that_are_no_groups_are_ignored(home: TreeBackend) -> None:
    async with place(home) as at:
        await at.tree.create(f"{layout.CONSUMERS}/no group")
        await at.admin.commit("jobs", {T0: 1})
        assert [group.group_id for group in await at.admin.list_groups()] == ["jobs"]

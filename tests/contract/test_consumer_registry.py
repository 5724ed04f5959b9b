"""The nodes of groups without a master over every home: subscriptions, owners, committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from uuid import UUID

import pytest

from ottla.client.consumer_registry.group_admin import group_exists, group_names, read_group
from ottla.client.consumer_registry.group_nodes import GroupPaths, OffsetContent, encode_consumer, encode_offset
from ottla.client.consumer_registry.group_reader import GroupReader
from ottla.client.consumer_registry.partition_registry import (
    WRITES_PER_REQUEST,
    PartitionRegistry,
    in_requests,
    register,
)
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.consumers.effects import Write, WriteKind
from ottla.consumers.partition_nodes import NO_NODE, ClaimId, OffsetNode, OwnerNode, PartitionNodes
from ottla.consumers.share import GroupView, StreamId
from ottla.coordination import layout
from ottla.coordination.tree import ANY_VERSION, Node, Tree
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.model.partition_state import ChangeResult
from tests.contract.registry_samples import (
    NOW_MS,
    PATHS,
    add_partitions,
    delete_topic,
    laid_out,
    make_topic,
    node_of,
    reading,
)
from tests.contract.tree_backends import TreeBackend, until
from tests.contract.unsure_tree import UnsureTree

APPLIED, STALE, UNKNOWN = ChangeResult.APPLIED, ChangeResult.STALE, ChangeResult.UNKNOWN
CLAIM, COMMIT, RELEASE = WriteKind.CLAIM, WriteKind.COMMIT, WriteKind.RELEASE
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
STREAM: Final = StreamId("a", 0)


class Calls:
    """Counts calls of watches."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


class Following(NamedTuple):
    reader: GroupReader
    calls: Calls


def follow(tree: Tree, subscription: Subscription) -> Following:
    calls = Calls()
    return Following(GroupReader(tree, PATHS, subscription, calls), calls)


async def view_of(following: Following) -> GroupView:
    return (await following.reader.read()).view


async def test_registered_consumers_are_seen_and_watched(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        await make_topic(one, "t", 3)
        following = follow(one, reading(t=1))
        assert await register(one, PATHS, "a", node_of(reading(t=1))) is APPLIED
        assert await view_of(following) == GroupView({"a": {"t": 1}}, {"t": 3})
        assert await register(two, PATHS, "b", node_of(reading(t=2, u=1))) is APPLIED
        await until(lambda: following.calls.count == 1)
        assert await view_of(following) == GroupView({"a": {"t": 1}, "b": {"t": 2}}, {"t": 3})
        await two.close()
        await until(lambda: following.calls.count == 2)
        assert await view_of(following) == GroupView({"a": {"t": 1}}, {"t": 3})


async def test_registering_twice_in_a_session_is_one_registration_and_another_session_is_refused(
    home: TreeBackend,
) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        for _ in range(2):
            assert await register(one, PATHS, "a", node_of(reading(t=1))) is APPLIED
        assert await register(two, PATHS, "a", node_of(reading(t=1))) is STALE
        await one.close()
        await two.sync()
        assert await register(two, PATHS, "a", node_of(reading(t=1))) is APPLIED


async def test_many_consumers_that_register_at_once_in_a_new_group_all_do(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        trees = [await running.connect() for _ in range(8)]
        outcomes = await asyncio.gather(
            *(register(tree, PATHS, f"c{number}", node_of(reading(t=1))) for number, tree in enumerate(trees))
        )
        assert outcomes == [APPLIED] * 8


async def test_registration_without_a_response_is_unknown_and_can_be_repeated(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        tree = UnsureTree(await running.connect())
        await register(tree, PATHS, "before", node_of(reading(t=1)))
        tree.lose_answers = 1
        assert await register(tree, PATHS, "a", node_of(reading(t=1))) is UNKNOWN
        assert await register(tree, PATHS, "a", node_of(reading(t=1))) is APPLIED


async def test_damaged_consumer_is_ignored_by_all_others(home: TreeBackend, caplog: pytest.LogCaptureFixture) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        await make_topic(one, "t", 3)
        await register(one, PATHS, "a", node_of(reading(t=1)))
        await register(two, PATHS, "b", node_of(reading(t=1)))
        following = follow(one, reading(t=1))
        await one.set(PATHS.consumer("b"), b"not ours", ANY_VERSION)
        for _ in range(2):
            assert (await view_of(following)).consumers == {"a": {"t": 1}}
        assert [record.getMessage() for record in caplog.records] == ["consumer.node_ignored"]


async def test_consumer_whose_node_was_overwritten_registers_again_and_all_are_notified(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        await register(one, PATHS, "a", node_of(reading(t=1)))
        await two.set(PATHS.consumer("a"), b"not ours", ANY_VERSION)
        following = follow(two, reading(t=1))
        assert (await view_of(following)).consumers == {}
        await one.sync()
        assert await register(one, PATHS, "a", node_of(reading(t=1))) is APPLIED
        await until(lambda: following.calls.count == 1)
        assert list((await view_of(following)).consumers) == ["a"]


async def test_group_whose_nodes_were_deleted_has_no_consumers(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        tree = await running.connect()
        assert (await view_of(follow(tree, reading(t=1)))).consumers == {}


async def test_topic_counts_from_when_it_is_created_and_again_when_it_grows(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        await register(one, PATHS, "a", node_of(reading(t=1)))
        following = follow(one, reading(t=1))
        assert await view_of(following) == GroupView({"a": {}}, {})
        await make_topic(two, "t", 2)
        await until(lambda: following.calls.count == 1)
        assert await view_of(following) == GroupView({"a": {"t": 1}}, {"t": 2})
        await add_partitions(two, "t", 3)
        await until(lambda: following.calls.count == 2)
        assert (await view_of(following)).partitions_counts == {"t": 5}
        await delete_topic(two, "t")
        await until(lambda: following.calls.count == 3)
        assert (await view_of(following)).partitions_counts == {}


async def test_filter_selects_the_same_topics_for_all_and_new_ones_when_they_are_created(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        chosen = Subscription({}, TopicFilter("page-.*", "page-x"), 2)
        for name, count in (("page-a", 1), ("page-x", 1), ("other", 1)):
            await make_topic(two, name, count)
        await register(one, PATHS, "a", node_of(chosen))
        await register(two, PATHS, "b", node_of(Subscription({"page-a": 1, "other": 1})))
        following = follow(one, chosen)
        assert await view_of(following) == GroupView({"a": {"page-a": 2}, "b": {"page-a": 1}}, {"page-a": 1})
        await make_topic(two, "page-b", 4)
        await until(lambda: following.calls.count == 1)
        view = await view_of(following)
        assert view.consumers == {"a": {"page-a": 2, "page-b": 2}, "b": {"page-a": 1}}
        assert view.partitions_counts == {"page-a": 1, "page-b": 4}


async def test_changes_of_unread_topics_do_not_wake_a_consumer(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        await make_topic(one, "t", 2)
        await register(one, PATHS, "a", node_of(reading(t=1)))
        following = follow(one, reading(t=1))
        await view_of(following)
        await make_topic(two, "u", 1)
        await two.create("/brokers/ids/7", b"{}", ephemeral=True)
        # A wake-up after them has another cause.
        await register(two, PATHS, "b", node_of(reading(t=1)))
        await until(lambda: following.calls.count == 1)


async def test_recreated_topic_is_missing_in_one_view_first(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        one, two = await running.connect(), await running.connect()
        await make_topic(one, "t", 2)
        following = follow(one, reading(t=1))
        former = await view_of(following)
        assert former.partitions_counts == {"t": 2}
        await delete_topic(two, "t")
        topic_id = await make_topic(two, "t", 2)
        await one.sync()
        passing = await following.reader.read()
        assert passing.is_passing
        assert passing.view.partitions_counts == {}
        after = await following.reader.read()
        assert not after.is_passing
        assert after.view == former
        assert following.reader.topic_id("t") == topic_id


async def test_damaged_topic_is_left_out_and_the_others_are_read(
    home: TreeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async with laid_out(home) as running:
        tree = await running.connect()
        await make_topic(tree, "t", 2)
        await make_topic(tree, "u", 3)
        await tree.set(layout.topic_path("t"), b"[]", ANY_VERSION)
        assert (await view_of(follow(tree, reading(t=1, u=1)))).partitions_counts == {"u": 3}
        assert "consumer.node_ignored" in caplog.text


class Partitions:
    """The partitions of topic `t` as one session reads and writes them."""

    def __init__(self, tree: Tree, topic_id: UUID | None = None) -> None:
        self.tree = tree
        self.topic_id = topic_id
        self.registry = PartitionRegistry(tree, PATHS, lambda topic: self.topic_id, lambda: NOW_MS)

    async def read(self, partition: TopicPartition = T0) -> PartitionNodes:
        return (await self.registry.read([partition]))[partition]

    async def write(
        self,
        kind: WriteKind,
        version: int,
        offset: int,
        *,
        number: int = 1,
        partition: TopicPartition = T0,
    ) -> ChangeResult:
        return (await self.registry.write([self.make(kind, version, offset, number=number, partition=partition)]))[0]

    def make(
        self, kind: WriteKind, version: int, offset: int, *, number: int = 1, partition: TopicPartition = T0
    ) -> Write:
        claim = None if kind is RELEASE else self.claim(number)
        return Write(number, kind, partition, version, offset, claim, STREAM)

    def claim(self, number: int = 1) -> ClaimId:
        return ClaimId(self.tree.session_id, number)


@asynccontextmanager
async def two_sessions(home: TreeBackend) -> AsyncIterator[tuple[Partitions, Partitions]]:
    async with laid_out(home) as running:
        one, two = Partitions(await running.connect()), Partitions(await running.connect())
        topic_id = await make_topic(one.tree, "t", 2)
        one.topic_id = two.topic_id = topic_id
        yield one, two


async def test_claim_commits_and_release_are_one_order_of_versions(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        assert await one.read() == PartitionNodes(None, None)
        assert await one.write(CLAIM, NO_NODE, NO_OFFSET) is APPLIED
        held = OffsetNode(NO_OFFSET, one.claim(), 0)
        assert await one.read() == PartitionNodes(OwnerNode(STREAM, is_own=True), held)
        assert await two.read() == PartitionNodes(OwnerNode(STREAM, is_own=False), held)
        assert await one.write(COMMIT, 0, 10) is APPLIED
        assert await one.write(COMMIT, 1, 20) is APPLIED
        assert await one.write(RELEASE, 2, 25) is APPLIED
        assert await two.read() == PartitionNodes(None, OffsetNode(25, None, 3))
        assert await two.write(CLAIM, 3, 25) is APPLIED


async def test_write_over_an_older_version_is_refused_and_changes_nothing(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        await one.read()
        await two.read()
        assert await one.write(CLAIM, NO_NODE, 0) is APPLIED
        assert await one.write(COMMIT, 0, 10) is APPLIED
        found = await two.read()
        for kind in (CLAIM, COMMIT, RELEASE):
            assert await two.write(kind, 0, 5) is STALE
        assert await two.write(CLAIM, NO_NODE, 5) is STALE
        # The version is right, but the partition is owned.
        assert await two.write(CLAIM, 1, 5) is STALE
        assert await two.read() == found


async def test_of_two_sessions_that_race_for_a_claim_one_has_it(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        await asyncio.gather(one.read(), two.read())
        outcomes = await asyncio.gather(one.write(CLAIM, NO_NODE, 0), two.write(CLAIM, NO_NODE, 0))
        assert sorted(outcome.value for outcome in outcomes) == ["applied", "stale"]
        winner = (one, two)[outcomes.index(APPLIED)]
        owner = (await winner.read()).owner
        assert owner is not None
        assert owner.is_own


async def test_owner_is_deleted_with_its_session_and_the_offset_stays(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        await one.read()
        await one.write(CLAIM, NO_NODE, 7)
        claim = one.claim()
        await one.tree.close()
        assert await two.read() == PartitionNodes(None, OffsetNode(7, claim, 0))


async def test_one_refused_write_does_not_block_others_of_its_request(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        partitions = [TopicPartition("t", number) for number in range(50)]
        await one.registry.read(partitions)
        await two.registry.read(partitions)
        taken = partitions[::7]
        theirs = [two.make(CLAIM, NO_NODE, 0, partition=partition) for partition in taken]
        assert await two.registry.write(theirs) == [APPLIED] * len(taken)
        ours = [one.make(CLAIM, NO_NODE, 0, partition=partition) for partition in partitions]
        outcomes = await one.registry.write(ours)
        assert outcomes == [STALE if partition in taken else APPLIED for partition in partitions]


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
async def test_write_without_a_response_is_unknown_and_the_next_read_decides(home: TreeBackend, is_done: bool) -> None:
    async with laid_out(home) as running:
        tree = UnsureTree(await running.connect())
        one = Partitions(tree)
        await one.read()
        tree.lose_answers, tree.drop_writes = 1, not is_done
        assert await one.write(CLAIM, NO_NODE, 3) is UNKNOWN
        tree.lose_answers = 0
        found = await one.read()
        if is_done:
            assert found.owner is not None
            assert found.owner.is_own
            assert found.offset == OffsetNode(3, one.claim(), 0)
        else:
            assert found == PartitionNodes(None, None)


async def test_write_of_a_former_session_is_not_sent_by_the_next_one(home: TreeBackend) -> None:
    class NextSession(UnsureTree):
        @property
        def session_id(self) -> int:
            return super().session_id + self.lives_count

        lives_count = 0

    async with laid_out(home) as running:
        tree = NextSession(await running.connect())
        one = Partitions(tree)
        await one.read()
        tree.lives_count = 1
        assert await one.write(CLAIM, NO_NODE, 3) is UNKNOWN
        assert await Partitions(tree).read() == PartitionNodes(None, None)


async def test_nodes_are_read_after_a_sync(home: TreeBackend) -> None:
    class Noting(UnsureTree):
        def __init__(self, tree: Tree) -> None:
            super().__init__(tree)
            self.calls: list[str] = []

        async def sync(self) -> None:
            await super().sync()
            self.calls.append("sync")

        async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
            if PATHS.owner(T0) in paths:
                self.calls.append("read")
            return await super().get_many(paths)

    async with laid_out(home) as running:
        tree = Noting(await running.connect())
        for _ in range(2):
            await Partitions(tree).read()
        assert tree.calls == ["sync", "read"] * 2


async def test_deleted_parents_are_recreated_by_the_next_read(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        await one.read()
        for path in (PATHS.owners_of("t"), PATHS.offsets_of("t"), PATHS.owners, PATHS.offsets):
            await two.tree.delete(path)
        assert await one.write(CLAIM, NO_NODE, 0) is STALE
        assert await one.read() == PartitionNodes(None, None)
        assert await one.write(CLAIM, NO_NODE, 0) is APPLIED


async def test_offset_of_a_deleted_topic_is_not_used_for_a_recreated_one(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        await one.read()
        await one.write(CLAIM, NO_NODE, 0)
        await one.write(COMMIT, 0, 500)
        claim = one.claim()
        await one.tree.close()
        two.topic_id = UUID(int=5)
        assert await two.read() == PartitionNodes(None, OffsetNode(NO_OFFSET, claim, 1))
        assert await two.write(CLAIM, 1, NO_OFFSET) is APPLIED
        await two.write(COMMIT, 2, 3)
        contents = await read_group(two.tree, PATHS)
        assert contents.offsets[T0].content[:3] == (3, two.claim(), UUID(int=5))


async def test_owner_continues_with_its_claimed_topic_until_it_releases(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        former = one.topic_id
        await one.read()
        await one.write(CLAIM, NO_NODE, 0)
        one.topic_id = two.topic_id = UUID(int=5)
        assert (await one.read()).offset == OffsetNode(0, one.claim(), 0)
        assert await one.write(RELEASE, 0, 500) is APPLIED
        assert (await read_group(two.tree, PATHS)).offsets[T0].content.topic_id == former
        assert await two.read() == PartitionNodes(None, OffsetNode(NO_OFFSET, None, 1))


async def test_offset_written_without_a_topic_id_is_accepted(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, _):
        await one.read()
        await one.tree.create(PATHS.offset(T0), b'{"version":1,"offset":41}')
        assert await one.read() == PartitionNodes(None, OffsetNode(41, None, 0))
        await one.write(CLAIM, 0, 41)
        assert (await read_group(one.tree, PATHS)).offsets[T0].content.topic_id == one.topic_id


async def test_damaged_offset_is_a_problem_of_its_partition_only(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, _):
        await one.read()
        await one.tree.create(PATHS.offset(T0), b"500")
        found = await one.registry.read([T0, T1])
        assert found[T1] == PartitionNodes(None, None)
        assert "/consumers/jobs/offsets/t/0" in (found[T0].problem or "")


async def test_owner_that_cannot_be_read_holds_its_partition(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        await one.read()
        await two.tree.create(PATHS.owner(T0), b"?", ephemeral=True)
        await one.tree.sync()
        found = await one.read()
        assert "/consumers/jobs/owners/t/0" in (found.problem or "")
        assert await one.write(CLAIM, NO_NODE, 0) is STALE
        assert (await two.read()).owner == OwnerNode(StreamId("?", 0), is_own=True)


def test_writes_are_split_in_order_into_requests_that_fit() -> None:
    writes = [Write(n, COMMIT, T0, 0, 0, None, STREAM) for n in range(2 * WRITES_PER_REQUEST + 1)]
    parts = list(in_requests(writes))
    assert [len(part) for part in parts] == [WRITES_PER_REQUEST, WRITES_PER_REQUEST, 1]
    assert [write for part in parts for write in part] == writes


async def test_largest_writes_fit_into_one_request(home: TreeBackend) -> None:
    async with laid_out(home) as running:
        tree = await running.connect()
        stream, topic = StreamId("c" * 100, 9_999), "t" * 249
        registry = PartitionRegistry(tree, GroupPaths.of("g" * 249), lambda topic: UUID(int=7), lambda: NOW_MS)
        partitions = [TopicPartition(topic, 900_000 + number) for number in range(WRITES_PER_REQUEST)]
        await registry.read(partitions)
        claims = [
            Write(n, CLAIM, partition, NO_NODE, 2**62, ClaimId(tree.session_id, 2**31 + n), stream)
            for n, partition in enumerate(partitions)
        ]
        assert await registry.write(claims) == [APPLIED] * WRITES_PER_REQUEST


async def test_all_nodes_of_a_group_are_read_and_damaged_ones_are_named(home: TreeBackend) -> None:
    async with two_sessions(home) as (one, two):
        tree = one.tree
        assert await group_names(tree) == []
        assert not await group_exists(tree, PATHS)
        assert await read_group(tree, PATHS) == ({}, {}, {}, [])
        await register(tree, PATHS, "a", node_of(reading(t=1)))
        await one.read()
        await one.write(CLAIM, NO_NODE, 4)
        await tree.create(PATHS.consumer("b"), b"?")
        await tree.create(f"{PATHS.offsets_of('t')}/x", b"")
        await tree.create(PATHS.offset(T1), b"?")
        await tree.create(PATHS.owner(T1), b"?")
        await two.tree.sync()
        assert await group_names(two.tree) == ["jobs"]
        assert await group_exists(two.tree, PATHS)
        contents = await read_group(two.tree, PATHS)
        assert contents.consumers == {"a": node_of(reading(t=1))}
        assert contents.owners == {T0: STREAM}
        offset = OffsetContent(4, one.claim(), one.topic_id, "a-0", NOW_MS)
        assert contents.offsets == {T0: (offset, 0)}
        assert [error.path for error in contents.damaged] == [
            PATHS.consumer("b"),
            PATHS.owner(T1),
            f"{PATHS.offsets_of('t')}/x",
            PATHS.offset(T1),
        ]


def test_nodes_of_a_group_fit_into_the_estimated_bytes_of_a_request() -> None:
    content = OffsetContent(2**63 - 1, ClaimId(-(2**63), 2**40), UUID(int=2**128 - 1), f"{'c' * 100}-9999", NOW_MS)
    assert len(encode_offset(content)) <= 512
    assert len(encode_consumer(node_of(reading(t=1)))) <= 512

"""Topics whose nodes take several requests: no reader sees a part of one, at any death of its writer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from ottla.coordination import layout, topic_writes
from ottla.coordination import tree as tree_module
from ottla.coordination.topics import LEFTOVER_AGE_MS_MIN, TopicRegistry
from ottla.coordination.topics_view import Topic
from ottla.coordination.tree import BATCH_BYTES_MAX, ConnectionLoss, Operation, Stat, Tree
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import NodeId
from tests.contract.tree_backends import TreeBackend
from tests.contract.unsure_tree import UnsureTree

ONE, TWO = NodeId(1), NodeId(2)
EPOCHS = {ONE: 101, TWO: 102}
# Their nodes take three requests; those of fewer partitions, three requests of a tenth of the bytes.
MANY: Final = 1_200
FEWER: Final = MANY // 10
REQUESTS_MAX: Final = 20
SEVERAL: Final = 3


class CutTree(UnsureTree):
    """A session that breaks at its nth write, which was applied or not; no later request is sent.

    `before_write` is called before each write, where another session could act.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.writes_count = 0
        self.cut_at: int | None = None
        self.before_write: Callable[[], Awaitable[None]] | None = None

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        if self.before_write is not None:
            await self.before_write()
        self.writes_count += 1
        if self.cut_at is not None and self.writes_count >= self.cut_at:
            if self.writes_count == self.cut_at and not self.drop_writes:
                await super().multi(operations)
            raise ConnectionLoss(operations[0].path)
        return await super().multi(operations)


@asynccontextmanager
async def sessions(home: TreeBackend) -> AsyncIterator[tuple[CutTree, Tree]]:
    """The session of a writer that breaks, and another one."""
    async with home.running() as running:
        ours, theirs = await running.connect(), await running.connect()
        await layout.lay_out(theirs)
        yield CutTree(ours), theirs


@pytest.fixture
def requests_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tree_module, topic_writes):
        monkeypatch.setattr(module, "BATCH_BYTES_MAX", BATCH_BYTES_MAX // 10)


short_requests: Final = pytest.mark.usefixtures("requests_are_short")


async def requests_of(tree: CutTree, write: Callable[[], Awaitable[object]]) -> int:
    before = tree.writes_count
    await write()
    return tree.writes_count - before


async def seen(tree: Tree) -> dict[str, Topic]:
    """The view of a reader that starts now."""
    return dict((await TopicRegistry(tree).refresh()).by_name)


async def all_paths(tree: Tree, path: str) -> list[str]:
    found = [path]
    for name in await tree.children(path):
        found += await all_paths(tree, f"{path}/{name}")
    return found


async def test_small_topic_takes_one_request_and_a_larger_one_several(home: TreeBackend) -> None:
    async with sessions(home) as (ours, _):
        registry = TopicRegistry(ours)
        assert await requests_of(ours, lambda: registry.create("small", [[ONE]] * 300, EPOCHS)) == 1
        assert 3 < await requests_of(ours, lambda: registry.create("large", [[ONE]] * MANY, EPOCHS)) < REQUESTS_MAX
        assert await requests_of(ours, lambda: registry.delete("small")) == 1
        assert 3 < await requests_of(ours, lambda: registry.delete("large")) < REQUESTS_MAX
        assert await tree_of_topics(ours) == [layout.TOPICS]


async def tree_of_topics(tree: Tree) -> list[str]:
    return await all_paths(tree, layout.TOPICS)


async def test_reader_between_any_two_requests_sees_all_of_a_large_topic_or_nothing(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        registry, follower = TopicRegistry(ours), TopicRegistry(theirs)
        counts: list[int] = []

        async def look() -> None:
            topics = await seen(theirs)
            assert dict((await follower.refresh()).by_name) == topics
            counts.append(len(topics["orders"].partitions) if "orders" in topics else 0)

        ours.before_write = look
        topic = await registry.create("orders", [[ONE]] * MANY, EPOCHS)
        await look()
        assert set(counts) == {0, MANY}
        counts.clear()
        await registry.add_partitions(topic, [[TWO]] * MANY, EPOCHS)
        await look()
        assert set(counts) == {MANY, 2 * MANY}
        counts.clear()
        await registry.delete("orders")
        await look()
        assert counts == [2 * MANY] + [0] * (len(counts) - 1)
        assert len(counts) > 3


# More than a request can hold: 300 partitions with a thousand replicas each.
WIDE: Final = [[NodeId(node_id) for node_id in range(1, 1_001)]] * 300


async def test_topic_whose_replicas_no_request_can_hold_is_refused_before_anything_is_written(
    home: TreeBackend,
) -> None:
    async with sessions(home) as (ours, theirs):
        with pytest.raises(RequestError) as refusal:
            await TopicRegistry(ours).create("orders", WIDE, EPOCHS)
        assert refusal.value.code is ErrorCode.INVALID_PARTITIONS
        assert ours.writes_count == 0
        assert await tree_of_topics(theirs) == [layout.TOPICS]


async def test_growth_by_replicas_that_no_request_can_hold_is_refused_before_anything_is_written(
    home: TreeBackend,
) -> None:
    async with sessions(home) as (ours, theirs):
        topic = await TopicRegistry(theirs).create("orders", [[ONE]], EPOCHS)
        before = await tree_of_topics(theirs)
        with pytest.raises(RequestError) as refusal:
            await TopicRegistry(ours).add_partitions(topic, WIDE, EPOCHS)
        assert refusal.value.code is ErrorCode.INVALID_PARTITIONS
        assert ours.writes_count == 0
        assert await tree_of_topics(theirs) == before


@short_requests
@pytest.mark.parametrize("was_written", [True, False])
async def test_creation_that_is_interrupted_anywhere_leaves_the_name_free(home: TreeBackend, was_written: bool) -> None:
    async with sessions(home) as (ours, theirs):
        ours.drop_writes = not was_written
        registry = TopicRegistry(theirs)
        for cut_at in range(1, REQUESTS_MAX):
            ours.writes_count, ours.cut_at = 0, cut_at
            try:
                topic = await TopicRegistry(ours).create("orders", [[ONE]] * FEWER, EPOCHS)
            except ConnectionLoss:
                assert await seen(theirs) == {}
                recreated = await registry.create("orders", [[TWO]], EPOCHS)
                assert await seen(theirs) == {"orders": recreated}
            else:
                assert await seen(theirs) == {"orders": topic}
                if ours.writes_count < cut_at:
                    assert cut_at > SEVERAL
                    return
            await registry.delete("orders")
            assert await tree_of_topics(theirs) == [layout.TOPICS]
        pytest.fail("a creation takes more requests than this test allows for")


@short_requests
@pytest.mark.parametrize("was_written", [True, False])
async def test_growth_that_is_interrupted_anywhere_can_be_repeated(home: TreeBackend, was_written: bool) -> None:
    async with sessions(home) as (ours, theirs):
        ours.drop_writes = not was_written
        registry = TopicRegistry(theirs)
        for cut_at in range(1, REQUESTS_MAX):
            topic = await registry.create("orders", [[ONE]], EPOCHS)
            ours.writes_count, ours.cut_at = 0, cut_at
            try:
                await TopicRegistry(ours).add_partitions(topic, [[ONE]] * FEWER, EPOCHS)
            except ConnectionLoss:
                assert await seen(theirs) == {"orders": topic}
                added = await registry.add_partitions(topic, [[TWO], [TWO]], EPOCHS)
                assert (await seen(theirs))["orders"].partitions == (*topic.partitions, *added)
            else:
                assert len((await seen(theirs))["orders"].partitions) == 1 + FEWER
                if ours.writes_count < cut_at:
                    assert cut_at > SEVERAL
                    return
            await registry.delete("orders")
            assert await tree_of_topics(theirs) == [layout.TOPICS]
        pytest.fail("a growth takes more requests than this test allows for")


@short_requests
@pytest.mark.parametrize("was_written", [True, False])
async def test_deletion_that_is_interrupted_anywhere_is_whole_or_finished_by_its_last_broker(
    home: TreeBackend, was_written: bool
) -> None:
    async with sessions(home) as (ours, theirs):
        ours.drop_writes = not was_written
        registry = TopicRegistry(theirs)
        for cut_at in range(1, REQUESTS_MAX):
            topic = await registry.create("orders", [[ONE, TWO]] * FEWER, EPOCHS)
            ours.writes_count, ours.cut_at = 0, cut_at
            try:
                await TopicRegistry(ours).delete("orders")
            except ConnectionLoss:
                assert await seen(theirs) == {"orders": topic}
                await registry.delete("orders")
            assert await seen(theirs) == {}
            is_whole = ours.writes_count < cut_at
            await registry.finish_deletions([topic.topic_id], TWO)
            assert [note.topic_id for note in await registry.pending_deletions()] == [topic.topic_id]
            await registry.finish_deletions([topic.topic_id], ONE)
            assert await registry.pending_deletions() == []
            assert await tree_of_topics(theirs) == [layout.TOPICS]
            if is_whole:
                assert cut_at > SEVERAL
                return
        pytest.fail("a deletion takes more requests than this test allows for")


@short_requests
async def test_name_can_be_reused_while_the_old_topics_nodes_still_exist(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        registry = TopicRegistry(theirs)
        old = await registry.create("orders", [[ONE]] * FEWER, EPOCHS)
        ours.cut_at = 2
        await TopicRegistry(ours).delete("orders")
        new = await registry.create("orders", [[TWO]], EPOCHS)
        await registry.finish_deletions([old.topic_id], ONE)
        assert await seen(theirs) == {"orders": new}
        assert await theirs.children(layout.topic_path("orders")) == [
            layout.topic_id_path("orders", new.topic_id)[-22:]
        ]


@short_requests
async def test_only_one_of_two_creators_of_a_large_topic_wins_and_the_other_leaves_no_nodes(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        attempts = [
            TopicRegistry(tree).create("orders", [[ONE]] * count, EPOCHS)
            for tree, count in ((ours, FEWER), (theirs, FEWER + 1), (ours, FEWER + 2))
        ]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        refused = [result for result in results if isinstance(result, RequestError)]
        assert [refusal.code for refusal in refused] == [ErrorCode.TOPIC_ALREADY_EXISTS] * 2
        (winner,) = (result for result in results if isinstance(result, Topic))
        assert await seen(theirs) == {"orders": winner}
        assert len(await theirs.children(layout.topic_path("orders"))) == 1


@short_requests
async def test_large_topic_and_one_of_a_single_request_exclude_each_other(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        registry = TopicRegistry(theirs)
        small: list[Topic] = []

        async def create_small() -> None:
            if ours.writes_count == 3 and not small:
                small.append(await registry.create("orders", [[TWO]], EPOCHS))

        ours.before_write = create_small
        with pytest.raises(RequestError) as refusal:
            await TopicRegistry(ours).create("orders", [[ONE]] * FEWER, EPOCHS)
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert await seen(theirs) == {"orders": small[0]}
        assert len(await theirs.children(layout.topic_path("orders"))) == 1


@short_requests
@pytest.mark.parametrize("interruption", ["grown", "deleted", "recreated"])
async def test_large_growth_of_a_topic_that_changes_meanwhile_adds_nothing(
    home: TreeBackend, interruption: str
) -> None:
    async with sessions(home) as (ours, theirs):
        registry = TopicRegistry(theirs)
        topic = await registry.create("orders", [[ONE]], EPOCHS)
        expected: dict[str, Topic] = {}

        async def interrupt() -> None:
            if ours.writes_count != 2 or expected:
                return
            if interruption == "grown":
                await registry.add_partitions(topic, [[TWO]] * 3, EPOCHS)
            else:
                await registry.delete("orders")
            if interruption == "recreated":
                await registry.create("orders", [[TWO]] * 5, EPOCHS)
            expected.update(await seen(theirs), other=topic)

        ours.before_write = interrupt
        with pytest.raises(RequestError) as refusal:
            await TopicRegistry(ours).add_partitions(topic, [[ONE]] * FEWER, EPOCHS)
        assert refusal.value.code is ErrorCode.INVALID_PARTITIONS
        del expected["other"]
        assert await seen(theirs) == expected


@short_requests
async def test_leftovers_of_dead_writers_are_removed_when_they_are_old_enough(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        ours.cut_at = 3
        with pytest.raises(ConnectionLoss):
            await TopicRegistry(ours).create("orders", [[ONE]] * FEWER, EPOCHS)
        registry = TopicRegistry(theirs)
        kept = await registry.create("kept", [[ONE]], EPOCHS)
        (leftover,) = await theirs.children(layout.topic_path("orders"))
        stat = await theirs.exists(f"{layout.topic_path('orders')}/{leftover}")
        assert stat is not None
        assert await registry.sweep(stat.ctime_ms + LEFTOVER_AGE_MS_MIN) == 0
        assert await theirs.children(layout.topic_path("orders")) == [leftover]
        assert await registry.sweep(stat.ctime_ms + LEFTOVER_AGE_MS_MIN + 1) == 1
        assert await theirs.children(layout.TOPICS) == ["kept"]
        assert await seen(theirs) == {"kept": kept}


@short_requests
async def test_creation_whose_nodes_are_removed_meanwhile_creates_no_partial_topic(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        registry = TopicRegistry(theirs)
        swept: list[int] = []

        async def sweep_once() -> None:
            if ours.writes_count == 3 and not swept:
                swept.append(await registry.sweep(2**60))

        ours.before_write = sweep_once
        topic = await TopicRegistry(ours).create("orders", [[ONE]] * FEWER, EPOCHS)
        assert swept == [1]
        assert await seen(theirs) == {"orders": topic}


async def test_topic_that_exists_only_between_two_views_is_reported_as_deleted(home: TreeBackend) -> None:
    async with sessions(home) as (_, theirs):
        writer, reader = TopicRegistry(theirs), TopicRegistry(theirs)
        view = await reader.refresh()
        before = reader.deletions_version
        await writer.create("other", [[ONE]], EPOCHS)
        await reader.refresh()
        assert reader.deletions_version == before
        view = reader.view
        await writer.create("orders", [[ONE]], EPOCHS)
        await writer.delete("orders")
        assert await reader.refresh() is view
        assert reader.deletions_version > before


async def test_each_broker_of_a_deleted_topic_removes_itself_and_the_last_one_the_note(home: TreeBackend) -> None:
    async with sessions(home) as (ours, theirs):
        registry = TopicRegistry(theirs)
        topics = [await registry.create(name, [[ONE, TWO], [TWO, ONE]], EPOCHS) for name in ("a", "b", "c")]
        for topic in topics:
            await registry.delete(topic.name)
        ids = [topic.topic_id for topic in topics]
        third = NodeId(3)
        await registry.finish_deletions(ids, third)  # it had no directory of the topic
        assert {note.brokers for note in await registry.pending_deletions()} == {(ONE, TWO)}
        await asyncio.gather(registry.finish_deletions(ids, ONE), TopicRegistry(ours).finish_deletions(ids[:2], TWO))
        assert [(note.name, note.brokers) for note in await registry.pending_deletions()] == [("c", (TWO,))]
        await registry.finish_deletions(ids, TWO)
        assert await registry.pending_deletions() == []

"""The topic registry over every home."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from ottla.coordination import layout
from ottla.coordination.changes import RING_BYTES_MAX, RING_CHANGES_MAX, ChangeFollower, Changes
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.state_changes import BATCH_STATES_MAX, StateChange
from ottla.coordination.topic_nodes import TopicDeletion
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import Topic
from ottla.coordination.tree import (
    ANY_VERSION,
    BadVersion,
    ConnectionLoss,
    CreateNode,
    DeleteNode,
    NodeExists,
    NoNode,
    Operation,
    SetNode,
    Stat,
    Tree,
)
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.identifiers import LeaderEpoch, NodeId, TopicPartition, uuid_to_text
from ottla.model.partition_state import (
    NO_STATE_VERSION,
    ChangeOutcome,
    ChangeResult,
    PartitionState,
    ReplicaIncarnation,
)
from tests.contract.tree_backends import TreeBackend, until
from tests.contract.unsure_tree import UnsureTree

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
EPOCHS = {ONE: 101, TWO: 102}
SINGLE = [[ONE]]


class GatedTree(UnsureTree):
    """A session whose writes each wait for a permit."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.writes_count = 0
        self.permits = asyncio.Semaphore(0)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        self.writes_count += 1
        await self.permits.acquire()
        return await super().multi(operations)


@asynccontextmanager
async def laid_out(home: TreeBackend) -> AsyncIterator[Tree]:
    async with home.running() as running:
        tree = await running.connect()
        await layout.lay_out(tree)
        yield tree


async def test_created_topic_is_seen_with_its_partitions_and_their_first_state(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        created = await registry.create("orders", [[ONE, TWO], [TWO, ONE]], EPOCHS)
        view = await TopicRegistry(tree).refresh()
        assert view.by_name == {"orders": created}
        assert view.by_id == {created.topic_id: created}
        first, second = created.partitions
        assert first.replicas == (ONE, TWO)
        assert first.state == PartitionState(
            ONE, LeaderEpoch(0), (ReplicaIncarnation(ONE, 101), ReplicaIncarnation(TWO, 102))
        )
        assert second.state.leader == TWO
        assert view.partition(TopicPartition("orders", 1)) == second
        assert view.partition(TopicPartition("orders", 2)) is None
        assert view.partition(TopicPartition("orders", -1)) is None
        assert view.partition(TopicPartition("other", 0)) is None


async def test_dead_replicas_of_a_new_topic_are_not_in_sync(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        topic = await TopicRegistry(tree).create("orders", [[THREE, TWO]], EPOCHS)
        assert topic.partitions[0].state == PartitionState(TWO, LeaderEpoch(0), (ReplicaIncarnation(TWO, 102),))


@pytest.mark.parametrize(
    ("name", "assignment", "code"),
    [
        ("or/ders", SINGLE, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", SINGLE, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("taken", SINGLE, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("ta.ken_twin", SINGLE, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", [], ErrorCode.INVALID_PARTITIONS),
        ("orders", [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", [[ONE, ONE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", [[ONE], [THREE]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_invalid_topic_is_refused_with_the_protocols_code(
    home: TreeBackend, name: str, assignment: list[list[NodeId]], code: ErrorCode
) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        await registry.create("taken", SINGLE, EPOCHS)
        await registry.create("ta_ken.twin", SINGLE, EPOCHS)
        with pytest.raises(RequestError) as refusal:
            await registry.create(name, assignment, EPOCHS)
        assert refusal.value.code is code
        assert set((await registry.refresh()).by_name) == {"taken", "ta_ken.twin"}


async def test_only_one_of_two_creators_of_a_name_wins(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        attempts = (TopicRegistry(tree).create("orders", SINGLE, EPOCHS) for _ in range(5))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        refused = [result for result in results if isinstance(result, RequestError)]
        assert len(refused) == 4
        assert {refusal.code for refusal in refused} == {ErrorCode.TOPIC_ALREADY_EXISTS}


async def test_topic_ids_are_fresh_never_reserved_and_never_start_with_a_dash(home: TreeBackend) -> None:
    drawn = [UUID(int=0), UUID(int=1), UUID(bytes=b"\xfb" + b"\xef" * 15), UUID(int=2**127 + 7)]
    assert uuid_to_text(drawn[2]).startswith("-")
    async with laid_out(home) as tree:
        topic = await TopicRegistry(tree, new_id=lambda: drawn.pop(0)).create("orders", SINGLE, EPOCHS)
        assert topic.topic_id == UUID(int=2**127 + 7)


async def test_recreated_topic_under_its_name_has_another_id(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        first = await registry.create("orders", [[ONE], [ONE]], EPOCHS)
        await registry.refresh()
        await registry.delete("orders")
        second = await registry.create("orders", SINGLE, EPOCHS)
        assert first.topic_id != second.topic_id
        assert (await registry.refresh()).by_name == {"orders": second}


async def test_deleted_topic_leaves_only_a_tombstone_until_its_directories_are_removed(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", [[ONE]] * 3, EPOCHS, {"retention.ms": "1"})
        deletion = await registry.delete("orders", topic.topic_id)
        assert deletion == TopicDeletion("orders", topic.topic_id, 3, (ONE,))
        assert await tree.children(layout.TOPICS) == []
        assert await tree.children(layout.TOPIC_CONFIGS) == []
        assert await registry.pending_deletions() == [deletion]
        await registry.finish_deletions([topic.topic_id], ONE)
        await registry.finish_deletions([topic.topic_id], ONE)  # once more is no error
        assert await registry.pending_deletions() == []


async def test_delete_refuses_a_missing_topic_or_another_id(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        with pytest.raises(RequestError) as missing:
            await registry.delete("orders")
        assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await registry.create("orders", SINGLE, EPOCHS)
        with pytest.raises(RequestError) as other:
            await registry.delete("orders", UUID(int=2**100))
        assert other.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
        assert "orders" in (await registry.refresh()).by_name


async def test_view_stays_the_same_object_while_nothing_changes(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        await registry.create("orders", SINGLE, EPOCHS)
        view = await registry.refresh()
        assert await registry.refresh() is view
        await registry.create("clicks", SINGLE, EPOCHS)
        newer = await registry.refresh()
        assert newer.version > view.version
        assert set(view.by_name) == {"orders"}
        assert newer.by_name["orders"] is view.by_name["orders"]


async def test_reader_that_missed_one_change_reads_only_its_subject(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        counting = UnsureTree(tree)
        writer, reader = TopicRegistry(tree), TopicRegistry(counting)
        for number in range(20):
            await writer.create(f"topic-{number}", [[ONE]] * 5, EPOCHS)
        await reader.refresh()
        counting.reads_count = 0
        await reader.refresh()
        assert counting.reads_count == 1
        await writer.create("one-more", SINGLE, EPOCHS)
        counting.reads_count = 0
        assert "one-more" in (await reader.refresh()).by_name
        assert counting.reads_count == 4  # /changes, the pointer, one state, whether /changes moved meanwhile


async def test_reader_that_missed_several_changes_reads_only_their_subjects(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        counting = UnsureTree(tree)
        writer, reader = TopicRegistry(tree), TopicRegistry(counting)
        topics = [await writer.create(f"topic-{number}", [[ONE]] * 5, EPOCHS) for number in range(20)]
        await reader.refresh()
        counting.reads_count = 0
        for topic in topics[:3]:
            assert await writer.change_states(changes_of(topic)[1:3]) == [APPLIED] * 2
        await writer.create("one-more", SINGLE, EPOCHS)
        await writer.delete("topic-2")
        view = await reader.refresh()
        assert (
            counting.reads_count == 1 + 2 * 2 + 3 + 1
        )  # /changes; two states; two pointers, one of them gone, and a state; whether /changes moved meanwhile
        assert dict(view.by_name) == dict((await TopicRegistry(tree).refresh()).by_name)


async def test_states_of_a_topic_that_was_recreated_meanwhile_are_those_of_the_new_one(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        writer, reader = TopicRegistry(tree), TopicRegistry(tree)
        old = await writer.create("orders", [[ONE]] * 3, EPOCHS)
        await reader.refresh()
        await writer.change_states(changes_of(old))
        await writer.delete("orders")
        new = await writer.create("orders", SINGLE, EPOCHS)
        assert (await reader.refresh()).by_name == {"orders": new}


async def test_reader_that_missed_more_than_the_ring_reads_all(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        writer, reader = TopicRegistry(tree), TopicRegistry(tree)
        topic = await writer.create("orders", SINGLE, EPOCHS)
        gone = await writer.create("gone", SINGLE, EPOCHS)
        await reader.refresh()
        await writer.delete("gone")
        for _ in range(RING_CHANGES_MAX):
            (outcome,) = await writer.change_states(changes_of(topic))
            assert outcome.result is ChangeResult.APPLIED
            topic = (await writer.refresh()).by_name["orders"]
        view = await reader.refresh()
        assert view.by_name == {"orders": topic}
        assert gone.topic_id not in view.by_id


async def test_concurrent_writers_of_one_tree_each_leave_their_subjects(home: TreeBackend) -> None:
    async with home.running() as running:
        trees = [await running.connect() for _ in range(3)]
        await layout.lay_out(trees[0])
        follower = ChangeFollower(trees[0], None)
        follower.settle(await follower.look())
        writers = [Changes(tree) for tree in trees]
        await asyncio.gather(*(writers[number % 3].commit([], [f"subject/{number}"]) for number in range(60)))
        await trees[0].sync()
        missed = follower.missed(await follower.look())
        assert missed is not None
        assert sorted(missed) == sorted(f"subject/{number}" for number in range(60))


async def test_commits_that_wait_for_another_share_the_next_request(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        gated = GatedTree(tree)
        changes, follower = Changes(gated), ChangeFollower(tree, None)
        follower.settle(await follower.look())
        names = [str(number) for number in range(20)]
        first = asyncio.ensure_future(changes.commit([CreateNode(f"/config/topics/{names[0]}")], names[:1]))
        await until(lambda: gated.writes_count == 1)
        others = [
            asyncio.ensure_future(changes.commit([CreateNode(f"/config/topics/{name}")], [name])) for name in names[1:]
        ]
        await asyncio.sleep(0)
        gated.permits.release()
        gated.permits.release()
        assert await asyncio.gather(first, *others) == [[None]] * 20
        assert gated.writes_count == 2
        assert follower.missed(await follower.look()) == tuple(str(number) for number in range(20))


async def test_each_failed_commit_of_a_shared_request_gets_its_own_error(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        changes = Changes(tree)
        await changes.commit([CreateNode("/config/topics/taken")], [])
        results = await asyncio.gather(
            changes.commit([], []),
            changes.commit([CreateNode("/config/topics/a"), CreateNode("/config/topics/taken")], []),
            changes.commit([SetNode("/config/topics/taken", b"x", 0)], []),
            changes.commit([SetNode("/config/topics/taken", b"y", 0)], []),
            return_exceptions=True,
        )
        assert results[0] == []
        assert isinstance(results[1], NodeExists)
        assert results[1].operation_index == 1
        assert isinstance(results[2], list)
        assert isinstance(results[3], BadVersion)
        assert results[3].operation_index == 0
        assert await tree.children("/config/topics") == ["taken"]


async def test_commit_that_is_cancelled_leaves_the_others_with_an_unknown_outcome(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        gated = GatedTree(tree)
        changes = Changes(gated)
        first = asyncio.ensure_future(changes.commit([], ["first"]))
        await until(lambda: gated.writes_count == 1)
        sending, shared = (asyncio.ensure_future(changes.commit([], [name])) for name in ("sending", "shared"))
        await asyncio.sleep(0)
        gated.permits.release()
        await first
        await until(lambda: gated.writes_count == 2)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(ConnectionLoss):
            await shared
        gated.permits.release()
        await changes.commit([], ["later"])
        assert gated.writes_count == 3


async def test_failed_change_leaves_no_subject_and_blocks_no_later_one(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        changes, follower = Changes(tree), ChangeFollower(tree, None)
        follower.settle(await follower.look())
        results = await asyncio.gather(
            changes.commit([], ["a"]),
            changes.commit([DeleteNode("/nowhere")], ["b"]),
            changes.commit([], ["c"]),
            return_exceptions=True,
        )
        assert [isinstance(result, NoNode) for result in results] == [False, True, False]
        assert follower.missed(await follower.look()) == ("a", "c")


async def test_change_of_very_many_subjects_counts_as_one_of_everything(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        changes, follower = Changes(tree), ChangeFollower(tree, None)
        follower.settle(await follower.look())
        await changes.commit([], [f"topics/some-long-name-{number}" for number in range(2000)])
        mark = await follower.look()
        assert follower.missed(mark) is None
        follower.settle(mark)
        await changes.commit([], ["topics/a"])
        assert follower.missed(await follower.look()) == ("topics/a",)


async def test_ring_of_an_earlier_format_makes_readers_read_all(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        writer, reader = TopicRegistry(tree), TopicRegistry(tree)
        await reader.refresh()
        await tree.set(layout.CHANGES, b'{"version":1,"subjects":["topics/a"]}', ANY_VERSION)
        topic = await writer.create("orders", SINGLE, EPOCHS)
        assert (await reader.refresh()).by_name == {"orders": topic}


async def test_ring_stays_small_after_any_changes(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        changes = Changes(tree)
        for number in range(12):
            await changes.commit([], [f"topics/{number}-{'x' * 200}-{each}" for each in range(50)])
            size = len((await tree.get(layout.CHANGES)).data)
            assert 10_000 < size < RING_BYTES_MAX + 1000


async def test_reader_that_missed_many_changes_reads_all_and_gets_the_same_view(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        writer, follower = TopicRegistry(tree), TopicRegistry(tree)
        rng = random.Random(7)
        alive: list[str] = []
        for number in range(60):
            if alive and rng.random() < 0.4:
                await writer.delete(alive.pop(rng.randrange(len(alive))))
            else:
                alive.append(f"topic-{number}")
                await writer.create(alive[-1], [[ONE]] * rng.randrange(1, 4), EPOCHS)
            if rng.random() < 0.5:
                await follower.refresh()
        assert dict((await follower.refresh()).by_name) == dict((await TopicRegistry(tree).refresh()).by_name)
        assert set(follower.view.by_name) == set(alive)


async def test_reader_is_notified_once_when_there_are_changes(home: TreeBackend) -> None:
    async with home.running() as running:
        ours, theirs = await running.connect(), await running.connect()
        await layout.lay_out(ours)
        told: list[None] = []
        reader, writer = TopicRegistry(ours, on_stale=lambda: told.append(None)), TopicRegistry(theirs)
        await reader.refresh()
        await reader.refresh()
        await writer.create("a", SINGLE, EPOCHS)
        await writer.create("b", SINGLE, EPOCHS)
        await until(lambda: len(told) == 1)
        assert set((await reader.refresh()).by_name) == {"a", "b"}
        await writer.create("c", SINGLE, EPOCHS)
        await until(lambda: len(told) == 2)


APPLIED = ChangeOutcome(ChangeResult.APPLIED, 1)
STALE = ChangeOutcome(ChangeResult.STALE, NO_STATE_VERSION)
UNKNOWN = ChangeOutcome(ChangeResult.UNKNOWN, NO_STATE_VERSION)
NEXT = PartitionState(ONE, LeaderEpoch(1), (ReplicaIncarnation(ONE, 200),), (ReplicaIncarnation(TWO, 5),))


def changes_of(topic: Topic, state: PartitionState = NEXT) -> list[StateChange]:
    return [StateChange.of(topic, partition, state) for partition in topic.partitions]


async def test_stale_change_of_a_state_does_not_block_the_others(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", [[ONE]] * 4, EPOCHS)
        changes = changes_of(topic)
        assert await registry.change_states([changes[1], changes[3]]) == [APPLIED, APPLIED]
        assert await registry.change_states(changes) == [APPLIED, STALE, APPLIED, STALE]
        view = await registry.refresh()
        partitions = view.by_name["orders"].partitions
        assert [partition.state for partition in partitions] == [NEXT] * 4
        assert [partition.state_version for partition in partitions] == [1] * 4
        assert await registry.change_states(changes) == [STALE] * 4
        assert await registry.refresh() is view
        assert await registry.change_states([]) == []


async def test_state_of_a_recreated_topic_is_not_touched(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        old = await registry.create("orders", SINGLE, EPOCHS)
        await registry.delete("orders")
        new = await registry.create("orders", SINGLE, EPOCHS)
        assert await registry.change_states(changes_of(old)) == [STALE]
        assert (await registry.refresh()).by_name["orders"] == new


@pytest.mark.parametrize("was_written", [True, False])
async def test_states_of_an_unanswered_request_and_those_after_it_have_an_unknown_outcome(
    home: TreeBackend, was_written: bool
) -> None:
    async with laid_out(home) as tree:
        unsure = UnsureTree(tree)
        registry = TopicRegistry(unsure)
        topic = await registry.create("orders", [[ONE]] * (BATCH_STATES_MAX + 1), EPOCHS)
        unsure.lose_answers, unsure.drop_writes = 1, not was_written
        assert set(await registry.change_states(changes_of(topic))) == {UNKNOWN}
        versions = [partition.state_version for partition in (await registry.refresh()).by_name["orders"].partitions]
        assert versions == [int(was_written)] * BATCH_STATES_MAX + [0]
        again = await registry.change_states(changes_of(topic))
        assert again == [STALE if was_written else APPLIED] * BATCH_STATES_MAX + [APPLIED]


@pytest.mark.parametrize(("topics_count", "partitions_count"), [(8, 250), (2000, 1)])
async def test_burst_of_elections_by_three_brokers_costs_a_reader_one_read_of_each_changed_state(
    home: TreeBackend, topics_count: int, partitions_count: int
) -> None:
    async with home.running() as running:
        trees = [await running.connect() for _ in range(4)]
        await layout.lay_out(trees[0])
        counting = UnsureTree(trees[3])
        writers, reader = [TopicRegistry(tree) for tree in trees[:3]], TopicRegistry(counting)
        names = [f"topic-number-{number}" for number in range(topics_count)]
        await asyncio.gather(*(writers[0].create(name, [[ONE]] * partitions_count, EPOCHS) for name in names))
        await writers[0].create("quiet", [[ONE]] * 500, EPOCHS)
        view = await reader.refresh()
        shares: list[list[StateChange]] = [[], [], []]
        for topic, partition in view.partitions():
            if topic.name != "quiet":
                shares[sum(map(len, shares)) % 3].append(StateChange.of(topic, partition, NEXT))
        counting.reads_count = 0
        results = await asyncio.gather(
            *(writer.change_states(share) for writer, share in zip(writers, shares, strict=True))
        )
        assert {outcome for outcomes in results for outcome in outcomes} == {APPLIED}
        newer = await reader.refresh()
        assert counting.reads_count == 1 + 2000 + 1  # finally, whether /changes moved meanwhile
        assert newer.by_name["quiet"] is view.by_name["quiet"]
        changed = {partition.state for topic, partition in newer.partitions() if topic.name != "quiet"}
        assert changed == {NEXT}
        assert dict(newer.by_name) == dict((await TopicRegistry(trees[0]).refresh()).by_name)


async def test_lost_response_of_an_applied_create_or_delete_is_no_failure(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        unsure = UnsureTree(tree)
        registry = TopicRegistry(unsure)
        unsure.lose_answers = 1
        topic = await registry.create("orders", SINGLE, EPOCHS)
        assert (await registry.refresh()).by_name == {"orders": topic}
        unsure.lose_answers = 1
        assert (await registry.delete("orders")).topic_id == topic.topic_id
        assert (await registry.refresh()).by_name == {}


async def test_lost_response_of_a_write_that_was_not_applied_is_raised(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        unsure = UnsureTree(tree)
        registry = TopicRegistry(unsure)
        unsure.drop_writes = True
        unsure.lose_answers = 1
        with pytest.raises(ConnectionLoss):
            await registry.create("orders", SINGLE, EPOCHS)
        await registry.create("orders", SINGLE, EPOCHS)
        unsure.lose_answers = 1
        with pytest.raises(ConnectionLoss):
            await registry.delete("orders")
        assert "orders" in (await registry.refresh()).by_name


async def test_partition_without_state_is_damage_and_its_topic_is_not_dropped_silently(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", SINGLE, EPOCHS)
        await tree.delete(layout.state_path("orders", topic.topic_id, 0))
        with pytest.raises(NodeDamaged, match="/brokers/topics/orders"):
            await registry.refresh()


async def test_damaged_node_is_named_and_read_again_when_it_was_repaired(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", SINGLE, EPOCHS)
        path = layout.state_path("orders", topic.topic_id, 0)
        good = (await tree.get(path)).data
        await tree.set(path, b'{"version":1,"leader":"one"}', ANY_VERSION)
        with pytest.raises(NodeDamaged, match=f"{path}.*'leader'"):
            await registry.refresh()
        await tree.set(path, good, ANY_VERSION)
        assert "orders" in (await registry.refresh()).by_name


async def test_topics_are_the_same_after_a_restart(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        topic = await TopicRegistry(tree).create("orders", [[ONE, TWO]] * 2, EPOCHS)
    async with laid_out(home) as tree:
        assert (await TopicRegistry(tree).refresh()).by_name == {"orders": topic}


async def test_added_partitions_follow_the_others_and_these_stay_unchanged(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", [[ONE], [TWO]], EPOCHS, {"retention.ms": "1"})
        await registry.refresh()
        added = await registry.add_partitions(topic, [[TWO, ONE], [ONE]], EPOCHS)
        grown = (await registry.refresh()).by_name["orders"]
        assert grown.topic_id == topic.topic_id
        assert grown.partitions == (*topic.partitions, *added)
        assert [each.partition_index for each in grown.partitions] == [0, 1, 2, 3]
        assert (grown.partitions[2].replicas, grown.partitions[2].state.leader) == ((TWO, ONE), TWO)
        assert (await TopicRegistry(tree).refresh()).by_name == {"orders": grown}
        await registry.delete("orders")
        assert await tree.children(layout.TOPICS) == []


async def test_growth_from_a_stale_count_adds_nothing(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = TopicRegistry(tree)
        topic = await registry.create("orders", SINGLE, EPOCHS)
        attempts = (registry.add_partitions(topic, SINGLE, EPOCHS) for _ in range(4))
        results = await asyncio.gather(*attempts, return_exceptions=True)
        refused = [result for result in results if isinstance(result, RequestError)]
        assert [refusal.code for refusal in refused] == [ErrorCode.INVALID_PARTITIONS] * 3
        assert len((await registry.refresh()).by_name["orders"].partitions) == 2
        await registry.delete("orders")
        with pytest.raises(RequestError):
            await registry.add_partitions(topic, SINGLE, EPOCHS)
        recreated = await registry.create("orders", SINGLE, EPOCHS)
        with pytest.raises(RequestError):
            await registry.add_partitions(topic, SINGLE, EPOCHS)
        assert (await registry.refresh()).by_name == {"orders": recreated}


@pytest.mark.parametrize("was_written", [True, False])
async def test_growth_whose_response_was_lost_returns_the_actual_result(home: TreeBackend, was_written: bool) -> None:
    async with laid_out(home) as tree:
        unsure = UnsureTree(tree)
        registry = TopicRegistry(unsure)
        topic = await registry.create("orders", SINGLE, EPOCHS)
        unsure.lose_answers, unsure.drop_writes = 1, not was_written
        if was_written:
            assert len(await registry.add_partitions(topic, SINGLE, EPOCHS)) == 1
        else:
            with pytest.raises(ConnectionLoss):
                await registry.add_partitions(topic, SINGLE, EPOCHS)
        assert len((await registry.refresh()).by_name["orders"].partitions) == 1 + was_written

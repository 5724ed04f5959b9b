"""Consumers of Algorithm 1 over every home: they share, release, take over, and are fenced."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import pytest

from ottla.client.consumer_registry.group_admin import read_group
from ottla.client.consumer_registry.group_nodes import OffsetContent, encode_offset
from ottla.client.consumer_registry.partition_registry import make_missing
from ottla.client.groups.subscription import Subscription, TopicFilter
from ottla.client.membership.membership import Event, Failed
from ottla.client.membership.tree.member import TreeMember
from ottla.consumers.consumer import Consumer
from ottla.consumers.effects import Blocked, Committed, Lost, Released, Revoke, Settled, Start
from ottla.consumers.rebalance_pace import RebalancePace
from ottla.coordination import layout, topic_nodes
from ottla.coordination.tree import (
    ANY_VERSION,
    AccessDenied,
    CreateNode,
    DeleteNode,
    Operation,
    SessionState,
    SetNode,
    Stat,
    Tree,
)
from ottla.model.identifiers import NO_OFFSET, TopicPartition
from ottla.runtime.clock import SystemClock
from tests.contract.registry_samples import (
    PATHS,
    add_partitions,
    delete_topic,
    laid_out,
    make_topic,
    node_of,
    reading,
)
from tests.contract.tree_backends import RunningHome, TreeBackend, until
from tests.contract.unsure_tree import UnsureTree

PACE: Final = RebalancePace(collect_ms=5, collect_max_ms=20, retry_ms=2, retry_max_ms=10, attempts_max=3)
T0: Final = TopicPartition("t", 0)

E = TypeVar("E")


class Member:
    """A member whose streams have always processed up to `asked[partition]`, and stop at once."""

    def __init__(self, tree: Tree, name: str, subscription: Subscription) -> None:
        self.tree = tree
        self.events: list[Event] = []
        self.held: dict[TopicPartition, Start] = {}
        self.asked: dict[TopicPartition, int] = {}
        self.hand_outs_at_losses: list[int] = []
        self.stops_at_once = True
        self.member = TreeMember(
            tree,
            PATHS,
            node_of(subscription),
            Consumer(name, PACE, random.Random(name)),
            SystemClock(),
            self._on_events,
        )
        self.member.start()

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            self.events.append(event)
            match event:
                case Start(partition):
                    assert partition not in self.held, "a partition has one claim at a time"
                    self.held[partition] = event
                case Revoke(partition, claim):
                    assert self.held[partition].claim == claim
                    if self.stops_at_once:
                        self.stop(partition)
                case Released(partition, claim) | Lost(partition, claim):
                    assert self.held.pop(partition).claim == claim
                    if isinstance(event, Lost):
                        self.hand_outs_at_losses.append(self.member.hand_out_until_ms)
                case _:
                    pass

    def stop(self, partition: TopicPartition) -> None:
        start = self.held[partition]
        self.member.on_stopped(partition, start.claim, self.asked.get(partition, start.offset))

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.asked |= offsets
        self.member.commit([(partition, self.held[partition].claim, offset) for partition, offset in offsets.items()])

    def heard(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def has_heard(self, kind: type[E], count: int) -> bool:
        return len(self.heard(kind)) == count

    @property
    def partitions(self) -> list[int]:
        return sorted(partition.partition for partition in self.held)

    @property
    def is_settled(self) -> bool:
        """No event since it owned its share."""
        last = [event for event in self.events if isinstance(event, Start | Revoke | Lost | Settled)]
        return bool(last) and isinstance(last[-1], Settled)


class Group:
    """The members of one test, each with its own session, and one more session to observe."""

    def __init__(self, running: RunningHome, onlooker: Tree) -> None:
        self.running = running
        self.tree = onlooker
        self.members: list[Member] = []

    async def join(self, name: str, subscription: Subscription | None = None, *, unsure: bool = False) -> Member:
        session = await self.running.connect()
        member = Member(UnsureTree(session) if unsure else session, name, subscription or reading(t=1))
        self.members.append(member)
        return member

    async def settled(self, *others: Callable[[], bool]) -> None:
        """Every partition of `t` and the other topics is owned as all members expect."""
        await until(lambda: all(member.is_settled for member in self.members) and all(each() for each in others))

    async def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.member.leave()
        await until(lambda: member.member.has_left)
        await member.tree.close()

    async def lose(self, member: Member) -> None:
        """Its session ends before it notices."""
        self.members.remove(member)
        await member.tree.close()
        await until(lambda: not member.held)

    async def offset(self, partition: TopicPartition = T0) -> int:
        await self.tree.sync()
        return (await read_group(self.tree, PATHS)).offsets[partition].content.offset

    async def set_offset(self, offset: int, partition: TopicPartition = T0) -> None:
        """As an operator does."""
        found = (await read_group(self.tree, PATHS)).offsets[partition]
        content = OffsetContent(offset, None, found.content.topic_id, "an operator", 0)
        await self.tree.multi(
            [
                SetNode(PATHS.offset(partition), encode_offset(content), found.version),
                SetNode(PATHS.offsets, b"", ANY_VERSION),
            ]
        )


@asynccontextmanager
async def group_of(home: TreeBackend, partitions_count: int = 4) -> AsyncIterator[Group]:
    async with laid_out(home) as running:
        group = Group(running, await running.connect())
        await make_topic(group.tree, "t", partitions_count)
        try:
            yield group
            assert not [member for member in group.members if member.heard(Failed)]
        finally:
            for member in group.members:
                member.member.stop()


async def test_one_consumer_owns_all_and_two_share(home: TreeBackend) -> None:
    async with group_of(home) as group:
        one = await group.join("a")
        await group.settled()
        assert one.partitions == [0, 1, 2, 3]
        assert {start.offset for start in one.held.values()} == {NO_OFFSET}
        two = await group.join("b")
        await group.settled(lambda: one.partitions == [0, 1], lambda: two.partitions == [2, 3])
        owners = (await read_group(group.tree, PATHS)).owners
        assert {str(stream) for stream in owners.values()} == {"a-0", "b-0"}


async def test_kept_partitions_are_not_interrupted_when_a_consumer_joins(home: TreeBackend) -> None:
    async with group_of(home) as group:
        one = await group.join("a")
        await group.settled()
        await group.join("b")
        await group.settled(lambda: one.partitions == [0, 1])
        assert {event.partition.partition for event in one.heard(Revoke)} == {2, 3}


async def test_each_stream_of_a_consumer_gets_a_run_of_partitions(home: TreeBackend) -> None:
    async with group_of(home) as group:
        one = await group.join("a", reading(t=3))
        await group.settled()
        assert [start.stream.number for _, start in sorted(one.held.items())] == [0, 0, 1, 2]


async def test_leaving_commits_processed_offsets_and_the_next_owner_starts_there(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        one.asked = {T0: 17}
        await group.leave(one)
        assert one.heard(Released)[0].offset == 17
        assert not one.heard(Lost)
        two = await group.join("b")
        await group.settled()
        assert two.held[T0].offset == 17
        assert (await read_group(group.tree, PATHS)).consumers.keys() == {"b"}


async def test_commit_is_confirmed_and_in_the_tree(home: TreeBackend) -> None:
    async with group_of(home, 3) as group:
        one = await group.join("a")
        await group.settled()
        offsets = {partition: 10 + partition.partition for partition in one.held}
        one.commit(offsets)
        await until(lambda: len(one.heard(Committed)) == 3)
        assert {event.partition: event.offset for event in one.heard(Committed)} == offsets
        assert await group.offset() == 10


async def test_same_offset_again_is_confirmed_again(home: TreeBackend) -> None:
    async with group_of(home, 1) as group:
        one = await group.join("a")
        await group.settled()
        for count in (1, 2, 3):
            one.commit({T0: 10})
            await until(partial(one.has_heard, Committed, count))


async def test_successor_of_a_dead_consumer_starts_at_the_last_commit(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        one.commit({T0: 10})
        await until(lambda: len(one.heard(Committed)) == 1)
        one.asked[T0] = 15
        two = await group.join("b")
        two.stops_at_once = one.stops_at_once = False
        await until(lambda: bool(one.heard(Revoke)))
        await group.lose(one)
        assert {event.partition.partition for event in one.heard(Lost)} == {0, 1}
        assert one.member.hand_out_until_ms == 0
        await group.settled(lambda: two.partitions == [0, 1])
        assert two.held[T0].offset == 10


async def test_partition_is_not_claimed_before_its_owner_releases_it(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        one.stops_at_once = False
        two = await group.join("b")
        await until(lambda: bool(two.heard(Blocked)))
        assert two.partitions == []
        assert two.heard(Blocked)[0].reason == "t-1 is held by a-0"
        assert one.partitions == [0, 1]
        one.asked = {TopicPartition("t", 1): 30}
        one.stop(TopicPartition("t", 1))
        await group.settled(lambda: two.partitions == [1])
        assert two.held[TopicPartition("t", 1)].offset == 30


async def test_added_partitions_and_new_topics_are_shared(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one, two = await group.join("a"), await group.join("b")
        await group.settled(lambda: one.partitions == [0], lambda: two.partitions == [1])
        await add_partitions(group.tree, "t", 3)
        await group.settled(lambda: one.partitions == [0, 1, 2], lambda: two.partitions == [3, 4])


async def test_filter_includes_topics_that_are_created_later(home: TreeBackend) -> None:
    async with group_of(home, 1) as group:
        one = await group.join("a", Subscription({}, TopicFilter("t|new-.*"), 1))
        await group.settled(lambda: set(one.held) == {T0})
        await make_topic(group.tree, "new-1", 1)
        await group.settled(lambda: set(one.held) == {T0, TopicPartition("new-1", 0)})
        await delete_topic(group.tree, "t")
        await group.settled(lambda: set(one.held) == {TopicPartition("new-1", 0)})


async def test_recreated_topic_is_read_from_its_start_by_its_former_owners(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        one.commit({T0: 500})
        await until(lambda: len(one.heard(Committed)) == 1)
        former = one.held[T0].claim
        await delete_topic(group.tree, "t")
        await make_topic(group.tree, "t", 2)
        await group.settled(lambda: one.partitions == [0, 1] and one.held[T0].claim != former)
        assert one.held[T0].offset == NO_OFFSET


async def test_recreated_topic_is_claimed_while_another_partition_is_held(home: TreeBackend) -> None:
    async with group_of(home, 1) as group:
        await make_topic(group.tree, "u", 1)
        held = TopicPartition("u", 0)
        await make_missing(group.tree, [PATHS.root, PATHS.owners, PATHS.owners_of("u")])
        await group.tree.create(PATHS.owner(held), b"b-0", ephemeral=True)
        one = await group.join("a", reading(t=1, u=1))
        await until(lambda: one.has_heard(Start, 1) and bool(one.heard(Blocked)))
        path = layout.topic_path("t")
        pointer = topic_nodes.decode_pointer(path, (await group.tree.get(path)).data)
        renewed = topic_nodes.encode_pointer(pointer._replace(topic_id=UUID(int=7)))
        # In one change: no member sees the group without the topic.
        await group.tree.set(path, renewed, ANY_VERSION)
        await until(lambda: one.has_heard(Start, 2))
        assert one.heard(Released) == [Released(T0, one.heard(Start)[0].claim, NO_OFFSET)]


async def test_owner_starts_at_an_operators_offset_without_a_commit(
    home: TreeBackend,
) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        one.commit({T0: 500})
        await until(lambda: len(one.heard(Committed)) == 1)
        former = one.held[T0].claim
        await group.set_offset(3)
        await group.settled(lambda: T0 in one.held and one.held[T0].claim != former)
        assert one.heard(Lost) == [Lost(T0, former)]
        assert one.held[T0].offset == 3
        assert await group.offset() == 3


async def test_commit_of_an_owner_that_an_operator_has_fenced_does_not_count(home: TreeBackend) -> None:
    async with group_of(home, 1) as group:
        one = await group.join("a")
        await group.settled()
        one.commit({T0: 500})
        await until(lambda: len(one.heard(Committed)) == 1)
        await group.set_offset(3)
        one.commit({T0: 600})
        await until(lambda: bool(one.heard(Lost)))
        await group.settled(lambda: T0 in one.held)
        assert one.held[T0].offset == 3
        assert [event.offset for event in one.heard(Committed)] == [500]


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
async def test_unknown_outcomes_are_resolved(home: TreeBackend, is_done: bool) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a", unsure=True)
        assert isinstance(one.tree, UnsureTree)
        one.tree.drop_writes = not is_done
        # The parents, the registration, the claims: each is lost once or more.
        one.tree.lose_answers = 3
        await group.settled(lambda: one.partitions == [0, 1])
        one.tree.lose_answers = 1
        one.commit({T0: 10})
        await until(lambda: bool(one.heard(Committed)))
        assert await group.offset() == 10
        one.tree.lose_answers = 1
        one.asked = {T0: 20}
        one.member.leave()
        await until(lambda: one.member.has_left)
        assert await group.offset() == 20
        # A release without a response is reported as lost: it may have been applied, or not.
        assert len(one.heard(Lost)) == (2 if is_done else 0)


async def test_deleted_nodes_of_a_running_group_are_recreated(home: TreeBackend) -> None:
    async with group_of(home, 1) as group:
        one = await group.join("a")
        await group.settled()
        await group.tree.multi(
            [
                DeleteNode(path)
                for path in (
                    PATHS.owner(T0),
                    PATHS.owners_of("t"),
                    PATHS.owners,
                    PATHS.offset(T0),
                    PATHS.offsets_of("t"),
                    PATHS.offsets,
                    PATHS.consumer("a"),
                    PATHS.ids,
                    PATHS.root,
                )
            ]
        )
        await group.settled(lambda: len(one.heard(Start)) > 1 and one.partitions == [0])
        await group.tree.sync()
        assert (await read_group(group.tree, PATHS)).owners.keys() == {T0}
        assert (await read_group(group.tree, PATHS)).consumers.keys() == {"a"}


async def test_consumer_whose_node_was_overwritten_registers_again(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one, two = await group.join("a"), await group.join("b")
        await group.settled(lambda: one.partitions == [0], lambda: two.partitions == [1])
        await group.tree.set(PATHS.consumer("a"), b"not ours", ANY_VERSION)
        await add_partitions(group.tree, "t", 2)
        await group.settled(lambda: one.partitions == [0, 1], lambda: two.partitions == [2, 3])


async def test_damaged_node_of_another_consumer_stops_no_member(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        await group.tree.create(PATHS.consumer("0"), b'{"version":99}')
        two = await group.join("b")
        await group.settled(lambda: one.partitions == [0], lambda: two.partitions == [1])


async def test_partition_with_a_damaged_offset_is_reported_and_the_others_continue(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        await group.tree.multi(
            [CreateNode(path) for path in (PATHS.root, PATHS.offsets, PATHS.offsets_of("t"))]
            + [CreateNode(PATHS.offset(T0), b"500")]
        )
        one = await group.join("a")
        await until(lambda: bool(one.heard(Blocked)) and one.partitions == [1])
        reason = one.heard(Blocked)[0].reason
        assert reason.startswith("t-0 cannot be claimed: tree node /consumers/jobs/offsets/t/0: should hold an object")
        await group.tree.set(PATHS.offset(T0), b'{"version":1,"offset":500}', ANY_VERSION)
        await group.settled(lambda: one.partitions == [0, 1])
        assert one.held[T0].offset == 500


async def test_fatal_error_ends_the_membership_and_is_named(home: TreeBackend) -> None:
    class Closed(UnsureTree):
        async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
            if operations[0].path.startswith(PATHS.owners + "/"):
                raise AccessDenied(operations[0].path)
            return await super().multi(operations)

    async with group_of(home, 2) as group:
        one = Member(Closed(await group.running.connect()), "a", reading(t=1))
        await until(lambda: bool(one.heard(Failed)))
        assert isinstance(one.heard(Failed)[0].error, AccessDenied)
        assert one.member.ended.is_set()
        assert one.member.hand_out_until_ms == 0


async def test_fault_in_the_event_receiver_ends_the_membership_after_all_is_lost(
    home: TreeBackend, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Member):
        def _on_events(self, events: Sequence[Event]) -> None:
            if any(isinstance(event, Settled) for event in events):
                raise ZeroDivisionError("a fault")
            super()._on_events(events)

    async with group_of(home, 2) as group:
        one = Faulty(await group.running.connect(), "a", reading(t=1))
        await until(lambda: bool(one.heard(Failed)))
        assert "ZeroDivisionError: a fault" in str(one.heard(Failed)[0].error)
        assert one.partitions == []
        assert len(one.heard(Lost)) == 2
        assert isinstance(one.events[-1], Failed)
        assert "consumer.bug" in caplog.text


async def test_stop_without_leave_loses_everything_and_commits_nothing(home: TreeBackend) -> None:
    async with group_of(home, 2) as group:
        one = await group.join("a")
        await group.settled()
        one.asked = {T0: 30}
        group.members.remove(one)
        one.member.stop()
        assert len(one.heard(Lost)) == 2
        assert one.tree.state is SessionState.CONNECTED
        assert await group.offset() == NO_OFFSET
        one.member.commit([(T0, one.heard(Start)[0].claim, 30)])
        assert await group.offset() == NO_OFFSET


async def test_three_hundred_partitions_are_claimed_committed_and_released(home: TreeBackend) -> None:
    async with group_of(home, 300) as group:
        one = await group.join("a")
        await group.settled(lambda: len(one.held) == 300)
        one.commit(dict.fromkeys(one.held, 5))
        await until(lambda: len(one.heard(Committed)) == 300)
        two = await group.join("b")
        await group.settled(lambda: len(one.held) == 150, lambda: len(two.held) == 150)
        assert {start.offset for start in two.held.values()} == {5}

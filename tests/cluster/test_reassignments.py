"""Replicas move to other brokers, over a tree that the brokers share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.context import NewTopic
from ottla.coordination.topics_view import NO_MOVE, PartitionNode
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from tests.cluster.test_replica_fetching import batch, content, partition_of, produce
from tests.cluster.test_shared_tree import Shared, shared
from tests.eventually import eventually_on_loop


def node(broker: Broker, topic: str = "orders") -> PartitionNode:
    return broker.context.topics.by_name[topic].partitions[0]


def is_at(broker: Broker, *replicas: int) -> bool:
    """Whether the partition's replicas are these, all in sync, and none moves."""
    there = node(broker)
    return there.replicas == replicas and there.move == NO_MOVE and set(there.state.in_sync_nodes()) == set(replicas)


async def several(brokers: Shared, count: int = 4, **settings: str) -> list[Broker]:
    started = [await brokers.start(node_id, **settings) for node_id in range(1, count + 1)]
    await eventually_on_loop(lambda: all(len(broker.context.brokers.live.by_id) == count for broker in started))
    return started


async def create(brokers: Sequence[Broker], replicas: list[int], **config: str) -> None:
    config = {name.replace("_", "."): value for name, value in config.items()}
    await brokers[0].context.topic_admin.create(NewTopic("orders", assignment={0: replicas}, config=config))
    await eventually_on_loop(lambda: all("orders" in broker.context.topics.by_name for broker in brokers))


async def move(broker: Broker, *replicas: int) -> None:
    assert await broker.context.topic_admin.reassign("orders", {0: replicas}, may_change_count=True) == {0: None}


async def test_all_replicas_move_and_the_former_logs_are_dropped(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third, fourth = everyone = await several(brokers)
        await create(everyone, [1, 2])
        await asyncio.to_thread(produce, first, *[batch(b"v%d" % number) for number in range(50)])
        records = content(partition_of(first))
        await move(second, 3, 4)
        await eventually_on_loop(lambda: all(is_at(broker, 3, 4) for broker in everyone))
        assert node(first).state.leader == 3
        await asyncio.to_thread(produce, third, batch(b"after"))
        assert content(partition_of(third)).startswith(records)
        await eventually_on_loop(lambda: content(partition_of(fourth)) == content(partition_of(third)))
        await eventually_on_loop(lambda: not any(each.context.partitions.find("orders", 0) for each in (first, second)))
        await eventually_on_loop(lambda: not list(tmp_path.glob("broker-[12]/orders-0")))


async def test_replicas_return_to_a_broker_that_dropped_them_before_a_restart(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = everyone = await several(brokers, 3)
        await create(everyone, [1, 2], min_insync_replicas="2")
        for _ in range(3):
            await asyncio.to_thread(produce, first, batch(b"one"))
            await move(first, 1, 3)
            await eventually_on_loop(lambda: all(is_at(broker, 1, 3) for broker in everyone))
            await asyncio.to_thread(produce, first, batch(b"two"))
            await move(third, 1, 2)
            await eventually_on_loop(lambda: all(is_at(broker, 1, 2) for broker in everyone))
        await asyncio.to_thread(produce, first, batch(b"end"))
        assert partition_of(first).high_watermark == 7
        await eventually_on_loop(lambda: content(partition_of(second)) == content(partition_of(first)))


async def test_move_to_a_dead_broker_makes_no_progress_and_can_be_cancelled(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, *_ = everyone = await several(brokers, 3)
        await create(everyone, [1, 2])
        await brokers.stop(3)
        await eventually_on_loop(lambda: 3 not in first.context.brokers.live.by_id)
        refused = await first.context.topic_admin.reassign("orders", {0: [1, 3], 7: [1]}, may_change_count=True)
        codes = {index: None if refusal is None else refusal.code for index, refusal in refused.items()}
        assert codes == {0: ErrorCode.INVALID_REPLICA_ASSIGNMENT, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await brokers.start(3)
        await eventually_on_loop(lambda: 3 in first.context.brokers.live.by_id)
        await brokers.stop(2)
        await eventually_on_loop(lambda: node(first).state.in_sync_nodes() == (1,))
        # Broker 2 remains a replica, so the move waits for it.
        await move(first, 3, 2)
        await eventually_on_loop(lambda: set(node(first).state.in_sync_nodes()) == {1, 3})
        assert node(first).move.adding == (3,)
        await asyncio.to_thread(produce, first, batch(b"meanwhile"))
        assert await first.context.topic_admin.reassign("orders", {0: None}, may_change_count=True) == {0: None}
        await eventually_on_loop(lambda: node(first).replicas in [(1, 2), (2, 1)] and not node(first).is_moving)
        await asyncio.to_thread(produce, first, batch(b"after"))
        refusal = (await first.context.topic_admin.reassign("orders", {0: None}, may_change_count=True))[0]
        assert isinstance(refusal, RequestError)
        assert refusal.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await eventually_on_loop(lambda: not list(tmp_path.glob("broker-3/orders-0")))


async def test_next_leader_completes_a_move(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third, fourth = await several(brokers)
        await create([first, second, third, fourth], [1, 2])
        await asyncio.to_thread(produce, first, *[batch(b"v%d" % number) for number in range(20)])
        await brokers.stop(4)
        await eventually_on_loop(lambda: 4 not in first.context.brokers.live.by_id)
        await brokers.start(4)
        await eventually_on_loop(lambda: 4 in first.context.brokers.live.by_id)
        await move(first, 3, 4)
        await brokers.stop(1)
        await eventually_on_loop(lambda: is_at(third, 3, 4))
        await asyncio.to_thread(produce, third, batch(b"after"))
        assert partition_of(third).high_watermark == 21
        # The former leader comes back: its replica is no longer assigned.
        await brokers.start(1)
        await eventually_on_loop(lambda: not list(tmp_path.glob("broker-1/orders-0")))


async def test_topic_may_be_deleted_while_it_moves(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, *_ = everyone = await several(brokers, 3)
        await create(everyone, [1, 2])
        await move(first, 2, 3)
        await first.context.topic_admin.delete("orders")
        await eventually_on_loop(lambda: all("orders" not in broker.context.topics.by_name for broker in everyone))
        await eventually_on_loop(lambda: not list(tmp_path.glob("broker-?/orders-0")))


async def test_one_replica_becomes_three_and_one_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = everyone = await several(brokers, 3)
        await create(everyone, [1])
        await asyncio.to_thread(produce, first, *[batch(b"v%d" % number) for number in range(20)])
        await move(third, 1, 2, 3)
        await eventually_on_loop(lambda: all(is_at(broker, 1, 2, 3) for broker in everyone))
        assert node(first).state.leader == 1
        await move(second, 3)
        await eventually_on_loop(lambda: all(is_at(broker, 3) for broker in everyone))
        await asyncio.to_thread(produce, third, batch(b"after"))
        assert partition_of(third).high_watermark == 21

"""Another broker becomes the leader: committed records stay, groups move with their partition, and a retried batch is
stored once.  The test writes the partition states, as an election would."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.context import NewTopic
from ottla.broker.partitions.partition import Partition
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.producing.settings import ProducerOptions
from ottla.client.wire.cluster import Cluster
from ottla.coordination.state_changes import StateChange
from ottla.coordination.topics import TopicRegistry
from ottla.groups.commands import Command, CommitOffsets, FetchOffsets, OffsetToCommit
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import OFFSETS_TOPIC, LeaderEpoch, NodeId, TopicPartition
from ottla.model.partition_state import ChangeResult
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.replication.replica import Role
from tests.cluster.test_shared_tree import Shared, shared
from tests.eventually import eventually_on_loop

TOPIC = "orders"


async def start_all(brokers: Shared, *node_ids: int, **settings: str) -> list[Broker]:
    started = [await brokers.start(node_id, **settings) for node_id in node_ids]
    await eventually_on_loop(lambda: all(len(broker.context.brokers.live.by_id) == len(node_ids) for broker in started))
    return started


async def create(broker: Broker, name: str, replicas: Sequence[int], others: Sequence[Broker]) -> None:
    """A topic of one partition, which each of its replicas has."""
    await broker.context.topic_admin.create(NewTopic(name, assignment={0: list(replicas)}))
    await eventually_on_loop(lambda: all(other.context.partitions.find(name, 0) is not None for other in others))


def partition_of(broker: Broker, name: str = TOPIC) -> Partition:
    found = broker.context.partitions.find(name, 0)
    assert found is not None
    return found


async def move(brokers: Shared, name: str, leader: Broker) -> None:
    """An election: `leader` leads in the next epoch."""
    registry = TopicRegistry(await brokers.home.connect())
    while True:
        topic = (await registry.refresh()).by_name[name]
        state = topic.partitions[0].state
        assert leader.node_id in state.in_sync_nodes(), "only a replica in sync may lead"
        led = state._replace(leader=NodeId(leader.node_id), leader_epoch=LeaderEpoch(state.leader_epoch + 1))
        (outcome,) = await registry.change_states([StateChange.of(topic, topic.partitions[0], led)])
        if outcome.result is ChangeResult.APPLIED:
            break
    await eventually_on_loop(lambda: partition_of(leader, name).role is Role.LEADER)


async def ask(broker: Broker, command: Command) -> Any:
    replied = asyncio.get_running_loop().create_future()
    broker.context.groups.submit(command.group_id, command, replied.set_result)  # type: ignore[union-attr]
    return await replied


def commit(offset: int) -> CommitOffsets:
    return CommitOffsets("g", "", None, -1, [OffsetToCommit(TOPIC, 0, offset, -1, "")])


async def until(broker: Broker, state: ErrorCode) -> None:
    await eventually_on_loop(lambda: broker.context.groups.state_of("g") is state)


async def committed(broker: Broker) -> list[int]:
    reply = await ask(broker, FetchOffsets("g", None))
    assert reply.error is ErrorCode.NONE, reply.error
    return [each.offset for _, partitions in reply.topics for each in partitions]


def send(broker: Broker, batch: bytes) -> int:
    """Produce with acks=all; its base offset."""
    host, port = broker.addresses[0]
    with Cluster(f"{host}:{port}") as cluster, RawProducer(cluster, ProducerOptions(idempotent=False)) as producer:
        producer.send(TopicPartition(TOPIC, 0), bytearray(batch))
        (result,) = producer.flush()
        assert result.error is None, result.error
        return result.base_offset


async def test_committed_offsets_and_commands_move_with_the_leader(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = all_three = await start_all(brokers, 1, 2, 3)
        await create(first, TOPIC, [1], [first])
        await create(first, OFFSETS_TOPIC, [1, 2, 3], all_three)
        coordinator = first
        for offset, successor in ((7, second), (8, third), (9, first), (10, second)):
            await until(coordinator, ErrorCode.NONE)
            assert list((await ask(coordinator, commit(offset))).errors) == [ErrorCode.NONE]
            assert await committed(coordinator) == [offset]
            await move(brokers, OFFSETS_TOPIC, successor)
            await until(successor, ErrorCode.NONE)
            assert await committed(successor) == [offset]
            await until(coordinator, ErrorCode.NOT_COORDINATOR)
            assert list((await ask(coordinator, commit(1))).errors) == [ErrorCode.NOT_COORDINATOR]
            coordinator = successor


async def test_batch_that_is_sent_again_to_a_new_leader_is_stored_once(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = both = await start_all(brokers, 1, 2)
        await create(first, TOPIC, [1, 2], both)

        def batch(sequence: int) -> bytes:
            records = [Record(0, 1_700_000_000_000, None, b"v")] * 3
            return bytes(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=sequence))

        assert await asyncio.to_thread(send, first, batch(0)) == 0
        assert await asyncio.to_thread(send, first, batch(3)) == 3
        await move(brokers, TOPIC, second)
        assert await asyncio.to_thread(send, second, batch(3)) == 3, "it is there already"
        assert await asyncio.to_thread(send, second, batch(6)) == 6
        await move(brokers, TOPIC, first)
        assert await asyncio.to_thread(send, first, batch(6)) == 6
        assert [partition_of(broker).log_end_offset for broker in both] == [9, 9]


async def test_replicas_agree_on_the_epochs_after_many_elections(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = both = await start_all(brokers, 1, 2)
        await create(first, TOPIC, [1, 2], both)
        record = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"v")]))
        await asyncio.to_thread(send, first, record)
        for leader in (second, first) * 3:
            await move(brokers, TOPIC, leader)
            await asyncio.to_thread(send, leader, record)
        for broker in both:
            assert [partition_of(broker).epoch_of(offset) for offset in range(7)] == list(range(7))

"""Followers over real connections: a follower's log equals its leader's, byte for byte, also after each of them was
down."""

from __future__ import annotations

import asyncio
import errno
import time
from pathlib import Path

import pytest
from typing_extensions import Buffer

from ottla.broker.broker import Broker
from ottla.broker.context import NewTopic
from ottla.broker.partitions.partition import Partition
from ottla.client.producing.raw_producer import RawProducer
from ottla.client.wire.cluster import Cluster
from ottla.coordination.configs import ConfigEntity
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.replication.replica import Role
from ottla.runtime.posix_disk import PosixDisk, PosixFile
from ottla.storage.checkpoints import read_high_watermarks
from tests.cluster.test_shared_tree import shared
from tests.eventually import eventually_on_loop

MIB = 1 << 20
WAIT_MS = 60_000

# With old timestamps, retention would delete the records that the test compares when it takes long.
NOW_MS = int(time.time() * 1000)


def partition_of(broker: Broker, index: int = 0) -> Partition:
    found = broker.context.partitions.find("orders", index)
    assert found is not None
    return found


def content(partition: Partition) -> bytes:
    """All batches, of one segment."""
    run = partition.read_batches(partition.log_start_offset, partition.log_end_offset, 1 << 30)
    return b"" if run is None else bytes(run.file.read_at(run.position, run.length_bytes))


def produce(broker: Broker, *batches: bytes, index: int = 0) -> None:
    """With acks=all: when it returns, all in-sync replicas have the batches."""
    host, port = broker.addresses[0]
    with Cluster(f"{host}:{port}") as cluster, RawProducer(cluster) as producer:
        for batch in batches:
            producer.send(TopicPartition("orders", index), bytearray(batch))
        for result in producer.flush():
            assert result.error is None, result.error


def batch(value: bytes, records_count: int = 1) -> bytes:
    return bytes(build_batch([Record(0, NOW_MS, None, value)] * records_count))


async def of_one_mind(leader: Broker, follower: Broker, index: int = 0) -> None:
    """The follower has the leader's bytes, and the high watermark covers them."""
    theirs, ours = partition_of(leader, index), partition_of(follower, index)
    assert (theirs.role, ours.role) == (Role.LEADER, Role.FOLLOWER)
    await eventually_on_loop(lambda: ours.log_end_offset == theirs.log_end_offset)
    assert content(ours) == content(theirs)


async def test_follower_has_the_records_of_its_leader(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(
            lambda: len(first.context.brokers.live.by_id) == len(second.context.brokers.live.by_id) == 2
        )
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2], 1: [2, 1]}))
        await eventually_on_loop(lambda: second.context.partitions.find("orders", 1) is not None)
        for leader, follower, index in ((first, second, 0), (second, first, 1)):
            for values in ([b"a"], [b"b" * 1_000] * 50, [bytes([i]) * 200_000 for i in range(20)]):
                await asyncio.to_thread(produce, leader, *map(batch, values), index=index)
                await of_one_mind(leader, follower, index)
        # acks=all was answered, so both had everything.
        assert partition_of(first).high_watermark == partition_of(first).log_end_offset == 71


async def test_batch_larger_than_a_fetch_is_followed_whole(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        limits = {
            "replica_fetch_max_bytes": "1000",
            "replica_fetch_response_max_bytes": "2000",
            "message_max_bytes": str(20 * MIB),
        }
        first, second = await brokers.start(1, **limits), await brokers.start(2, **limits)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await asyncio.to_thread(produce, first, batch(b"x" * 10 * MIB), batch(b"y"), batch(b"z" * 3 * MIB))
        await of_one_mind(first, second)


async def test_many_partitions_are_followed_in_one_session(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        count = 60
        await first.context.topic_admin.create(NewTopic("orders", assignment={index: [1, 2] for index in range(count)}))
        for index in range(0, count, 7):
            await asyncio.to_thread(produce, first, *map(batch, [bytes([index])] * (index + 1)), index=index)
        for index in range(count):
            await of_one_mind(first, second, index)


async def test_replicas_record_their_high_watermarks_periodically_and_at_the_stop(tmp_path: Path) -> None:
    def recorded(node_id: int) -> dict[TopicPartition, int]:
        return read_high_watermarks(PosixDisk(), str(tmp_path / f"broker-{node_id}"))

    orders = TopicPartition("orders", 0)
    async with shared(tmp_path) as brokers:
        often = {"replica_high_watermark_checkpoint_interval_ms": "1"}
        first, second = await brokers.start(1), await brokers.start(2, **often)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await first.context.topic_admin.create(NewTopic("alone", assignment={0: [2]}))
        await eventually_on_loop(lambda: second.context.partitions.find("orders", 0) is not None)
        await asyncio.to_thread(produce, first, batch(b"a", 3))
        await of_one_mind(first, second)
        await eventually_on_loop(lambda: recorded(2).get(orders) == 3)
        assert recorded(2).keys() == {orders}, "alone a replica needs none"
        assert recorded(1) == {}
    assert recorded(1) == {orders: 3}


async def test_follower_catches_up_after_an_absence_and_is_in_sync_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await asyncio.to_thread(produce, first, batch(b"before"))
        await brokers.stop(2)
        leading = partition_of(first)
        await eventually_on_loop(lambda: leading.in_sync_count == 1)
        await asyncio.to_thread(produce, first, *[batch(b"x" * 300_000)] * 20)
        second = await brokers.start(2)
        await of_one_mind(first, second)
        await eventually_on_loop(lambda: leading.in_sync_count == 2)
        await asyncio.to_thread(produce, first, batch(b"after"))
        await of_one_mind(first, second)
        assert partition_of(second).log_end_offset == 22


async def test_follower_restarts_at_the_leaders_log_start_when_its_next_records_are_deleted(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await asyncio.to_thread(produce, first, batch(b"before"))
        await brokers.stop(2)
        await eventually_on_loop(lambda: partition_of(first).in_sync_count == 1)
        await asyncio.to_thread(produce, first, *[batch(b"deleted")] * 5, batch(b"left", 3))
        await first.context.record_deletions.delete({TopicPartition("orders", 0): 7}, WAIT_MS)
        second = await brokers.start(2)
        theirs, ours = partition_of(first), partition_of(second)
        await eventually_on_loop(lambda: (ours.log_start_offset, ours.log_end_offset) == (7, 9))
        assert content(ours) == content(theirs)
        assert await first.context.record_deletions.delete({TopicPartition("orders", 0): 8}, WAIT_MS) == {
            ("orders", 0): 8
        }
        assert ours.log_start_offset == 8, "the answer waited for the follower"


async def test_leader_with_a_read_only_log_hands_over_to_a_replica_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await asyncio.to_thread(produce, first, batch(b"before"))
        write_at = PosixFile.write_at

        def failing_write(file: PosixFile, position: int, data: Buffer) -> int:
            if "broker-1/orders-0/" in file.path:
                raise OSError(errno.EIO, "the disk does not answer")
            return write_at(file, position, data)

        monkeypatch.setattr(PosixFile, "write_at", failing_write)
        # Refused by the first broker, and sent again to the leader that follows it.
        await asyncio.to_thread(produce, first, batch(b"after"))
        assert (partition_of(first).role, partition_of(second).role) == (Role.FOLLOWER, Role.LEADER)
        assert partition_of(second).log_end_offset == 2


async def test_throttle_that_was_set_before_a_start_applies_from_the_start(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first = await brokers.start(1)
        throttled = {"follower.replication.throttled.replicas": "*"}
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1]}, config=throttled))
        await first.context.topic_admin.alter_config(
            ConfigEntity.broker(None), {"follower.replication.throttled.rate": "1000"}
        )
        second = await brokers.start(2)
        assert second.cluster is not None
        assert second.cluster.fetchers.throttle.is_on

"""Leadership moves when brokers go and come, over a tree that they share."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from uuid import UUID

from ottla.broker.broker import Broker
from ottla.broker.context import NewTopic
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.layout import TOPICS, lay_out, partitions_path, topic_id_path, topic_path
from ottla.coordination.topics import LEFTOVER_AGE_MS_MIN
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.partition_state import NO_LEADER, PartitionState
from ottla.storage.checkpoints import CLEAN_SHUTDOWN_FILE
from ottla.storage.directory.directory_identity import BOOT_NOTE_FILE
from ottla.testing.fake_clock import FakeClock
from tests.cluster.test_replica_fetching import batch, content, partition_of, produce
from tests.cluster.test_shared_tree import Shared, shared
from tests.eventually import eventually_on_loop

WAIT_MS = 60_000


def state_at(broker: Broker, topic: str = "orders") -> PartitionState:
    return broker.context.topics.by_name[topic].partitions[0].state


async def three(brokers: Shared, **settings: str) -> list[Broker]:
    started = [await brokers.start(node_id, **settings) for node_id in (1, 2, 3)]
    await eventually_on_loop(lambda: all(len(broker.context.brokers.live.by_id) == 3 for broker in started))
    return started


def in_sync(broker: Broker, topic: str = "orders") -> set[int]:
    return set(state_at(broker, topic).in_sync_nodes())


async def test_replica_in_sync_leads_with_a_complete_log_when_the_leader_is_gone(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = await three(brokers)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2, 3]}))
        await eventually_on_loop(lambda: all("orders" in broker.context.topics.by_name for broker in (second, third)))
        await asyncio.to_thread(produce, first, *[batch(b"v%d" % number) for number in range(20)])
        epoch = state_at(first).leader_epoch
        await brokers.stop(1)
        await eventually_on_loop(lambda: state_at(third).leader == 2 and in_sync(third) == {2, 3})
        assert state_at(third).leader_epoch > epoch
        await asyncio.to_thread(produce, second, batch(b"after"))
        assert partition_of(second).high_watermark == 21
        back = await brokers.start(1)
        await eventually_on_loop(lambda: in_sync(second) == {1, 2, 3})
        await eventually_on_loop(lambda: content(partition_of(back)) == content(partition_of(second)))


async def test_cluster_that_was_stopped_leads_again_in_new_epochs_with_all_records(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, _, third = await three(brokers)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2, 3]}))
        await first.context.topic_admin.create(NewTopic("single", assignment={0: [2]}))
        await eventually_on_loop(lambda: "single" in third.context.topics.by_name)
        await asyncio.to_thread(produce, first, batch(b"kept"))
        epochs = [state_at(first, topic=name).leader_epoch for name in ("orders", "single")]
        for node_id in (1, 2, 3):
            await brokers.stop(node_id)
        first, second, third = await three(brokers)
        await eventually_on_loop(lambda: in_sync(third) == {1, 2, 3} and state_at(third).leader != -1)
        await eventually_on_loop(lambda: state_at(third, topic="single").leader == 2)
        assert state_at(third).leader_epoch > epochs[0]
        assert state_at(third, topic="single").leader_epoch > epochs[1]
        leader = {1: first, 2: second, 3: third}[state_at(third).leader]
        await eventually_on_loop(lambda: partition_of(leader).high_watermark == 1)
        await asyncio.to_thread(produce, leader, batch(b"more"))


async def test_preferred_leader_leads_its_partitions_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        settings = {"leader_imbalance_check_interval_seconds": "1"}
        first, second, third = await three(brokers, **settings)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2, 3]}))
        await eventually_on_loop(
            lambda: "orders" in second.context.topics.by_name and "orders" in third.context.topics.by_name
        )
        await brokers.stop(1)
        await eventually_on_loop(lambda: state_at(third).leader == 2)
        await brokers.start(1, **settings)
        await eventually_on_loop(lambda: state_at(third).leader == 1)


async def test_operator_elects_the_first_replicas_again(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = await three(brokers)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2, 3]}))
        await eventually_on_loop(
            lambda: "orders" in second.context.topics.by_name and "orders" in third.context.topics.by_name
        )
        await brokers.stop(1)
        await eventually_on_loop(lambda: state_at(third).leader == 2)
        wanted = [TopicPartition("orders", 0), TopicPartition("orders", 7)]
        assert third.context.elections is not None
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await third.context.elections.elect(wanted, is_unclean=False, timeout_ms=WAIT_MS)
        assert refused == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, unknown]
        assert await third.context.elections.elect(wanted[:1], is_unclean=True, timeout_ms=WAIT_MS) == [
            ErrorCode.ELECTION_NOT_NEEDED
        ]
        await brokers.start(1)
        await eventually_on_loop(lambda: in_sync(third) == {1, 2, 3})
        assert await third.context.elections.elect(wanted, is_unclean=False, timeout_ms=WAIT_MS) == [
            ErrorCode.NONE,
            unknown,
        ]
        await eventually_on_loop(lambda: state_at(second).leader == 1)


async def test_unclean_election_is_held_only_where_the_topic_allows_it(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = await three(brokers)
        unclean = {"unclean.leader.election.enable": "true"}
        await first.context.topic_admin.create(NewTopic("safe", assignment={0: [1, 2]}))
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}, config=unclean))
        await eventually_on_loop(lambda: "orders" in second.context.topics.by_name)
        await brokers.stop(2)
        await eventually_on_loop(lambda: in_sync(first) == in_sync(first, "safe") == {1})
        await brokers.stop(1)
        await eventually_on_loop(lambda: set(third.context.brokers.live.by_id) == {3})
        await brokers.start(2)
        await eventually_on_loop(lambda: state_at(third).leader == 2)
        assert third.context.topics.by_name["safe"].partitions[0].state.leader == 1


async def test_operators_unclean_election_skips_a_broker_that_lost_its_log(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = await three(brokers)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await eventually_on_loop(
            lambda: "orders" in second.context.topics.by_name and "orders" in third.context.topics.by_name
        )
        await asyncio.to_thread(produce, first, batch(b"kept"))
        for node_id in (2, 1):
            await brokers.stop(node_id)
            await eventually_on_loop(lambda: in_sync(third) == {1})
        shutil.rmtree(tmp_path / "broker-1" / "orders-0")
        first = await brokers.start(1)
        await eventually_on_loop(lambda: in_sync(third) == set())
        second = await brokers.start(2)
        await eventually_on_loop(lambda: len(third.context.brokers.live.by_id) == 3)
        assert third.context.elections is not None
        wanted = [TopicPartition("orders", 0)]
        assert await third.context.elections.elect(wanted, is_unclean=True, timeout_ms=WAIT_MS) == [ErrorCode.NONE]
        await eventually_on_loop(lambda: state_at(second).leader == 2 and in_sync(second) == {1, 2})
        assert content(partition_of(first)) == content(partition_of(second)), "the lost log was fetched again"


def lose_power(directory: Path) -> None:
    """Make the directory of a stopped broker look as after a power cut: unflushed data may be lost."""
    for name in (CLEAN_SHUTDOWN_FILE, BOOT_NOTE_FILE):
        (directory / name).unlink()


async def test_only_replica_leads_with_the_records_that_a_power_cut_left(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        os_policy = {"log_flush_policy": "os"}
        first, _, third = await three(brokers, **os_policy)
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1]}))
        await first.context.topic_admin.create(NewTopic("copied", assignment={0: [1, 2]}))
        await asyncio.to_thread(produce, first, batch(b"written"))
        await eventually_on_loop(lambda: {"orders", "copied"} <= third.context.topics.by_name.keys())
        epoch = state_at(third).leader_epoch
        for node_id in (1, 2):
            await brokers.stop(node_id)
            lose_power(tmp_path / f"broker-{node_id}")
        first, _ = await brokers.start(1, **os_policy), await brokers.start(2, **os_policy)
        await eventually_on_loop(lambda: state_at(third).leader == 1)
        assert state_at(third).leader_epoch > epoch
        assert partition_of(first).high_watermark == 1
        await eventually_on_loop(lambda: not state_at(third, "copied").in_sync)
        assert state_at(third, "copied").leader == NO_LEADER, "the other one might have what this one lost"


async def test_starting_broker_removes_old_leftovers_of_a_dead_creator(tmp_path: Path) -> None:
    clock = FakeClock()
    home = await EmbeddedBackend.open(str(tmp_path / "tree"), clock=clock)
    try:
        tree = await home.connect()
        await lay_out(tree)
        topic_id = UUID(int=2**100)
        for path in (topic_path("orders"), topic_id_path("orders", topic_id), partitions_path("orders", topic_id)):
            await tree.create(path)
        clock.advance(LEFTOVER_AGE_MS_MIN + 1)
        brokers = Shared(home, tmp_path)
        await brokers.start(1)
        left = await tree.children(TOPICS)
        await brokers.stop(1)
        assert left == []
    finally:
        await home.close()


async def test_recreated_replica_leads_again_after_its_next_restart(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = [await brokers.start(node_id) for node_id in (1, 2)]
        await eventually_on_loop(
            lambda: len(first.context.brokers.live.by_id) == len(second.context.brokers.live.by_id) == 2
        )
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1, 2]}))
        await eventually_on_loop(lambda: "orders" in second.context.topics.by_name)
        await asyncio.to_thread(produce, first, *[batch(b"v%d" % number) for number in range(5)])
        whole = content(partition_of(first))
        await brokers.stop(2)
        (tmp_path / "broker-2" / "orders-0").rename(tmp_path / "lost")
        second = await brokers.start(2)
        await eventually_on_loop(lambda: in_sync(second) == {1, 2})
        await brokers.stop(1)
        await eventually_on_loop(lambda: state_at(second).leader == 2 and in_sync(second) == {2})
        epoch = state_at(second).leader_epoch
        await brokers.stop(2)
        second = await brokers.start(2)
        await eventually_on_loop(lambda: state_at(second).leader == 2 and state_at(second).leader_epoch > epoch)
        assert content(partition_of(second)) == whole
        await asyncio.to_thread(produce, second, batch(b"more"))

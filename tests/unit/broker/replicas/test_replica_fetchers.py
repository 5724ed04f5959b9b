"""Which leader each partition is fetched from.  No leader can be reached here: none has an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.broker.monitoring.metrics import replica_fetcher_metrics
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.broker.upkeep.flusher import FlushSignal
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.model.partition_state import NO_LEADER
from ottla.model.settings import BrokerSettings
from ottla.observe.metrics import CollectorRegistry
from ottla.runtime.clock import SystemClock
from ottla.storage.errors import LogOffline
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of, replicated
from tests.unit.broker.served_log import ServedLog

THIRD = NodeId(3)
ALL = (HERE, ELSEWHERE, THIRD)
BROKERS = one_of(*ALL)


class Follower(ServedLog):
    """A partition of three brokers."""

    def __init__(self, name: str, leader: NodeId = ELSEWHERE) -> None:
        super().__init__(name, leader_epoch=None)
        self.epoch = 0
        self.be(leader)

    def be(self, leader: NodeId, in_sync: tuple[NodeId, ...] = ALL) -> None:
        """Follow `leader` in another epoch; lead, when it is this broker."""
        self.epoch += 1
        self.partition.on_state(replicated(leader, self.epoch, self.epoch, in_sync, ALL), BROKERS, 0)


class Fetchers(ReplicaFetchers):
    """Knows the leader of each fetched partition."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.is_disk_stuck = False
        self.failed_logs: list[TopicPartition] = []
        self.asked: asyncio.Queue[NodeId] = asyncio.Queue()
        super().__init__(
            BROKERS,
            self._no_address,
            BrokerSettings.of({"replica.fetch.backoff.ms": "1"}),
            FlushSignal(loop),
            SystemClock(),
            loop,
            lambda: self.is_disk_stuck,
            on_leader_refused=lambda _: None,
            on_log_failed=self.failed_logs.append,
        )
        self.start([])

    def _no_address(self, node_id: NodeId) -> None:
        self.asked.put_nowait(node_id)

    @property
    def leaders(self) -> dict[NodeId, int]:
        """How many partitions are fetched from each."""
        return {leader_id: len(fetcher) for leader_id, fetcher in self._fetchers.items()}


@asynccontextmanager
async def fetchers() -> AsyncIterator[Fetchers]:
    found = Fetchers()
    try:
        yield found
    finally:
        await found.stop()
        assert not found._stopping


async def test_each_leader_has_one_fetcher_for_all_its_partitions() -> None:
    async with fetchers() as found:
        found.follow([Follower("a").partition, Follower("b", THIRD).partition])
        found.follow([Follower("c").partition])
        assert found.leaders == {ELSEWHERE: 2, THIRD: 1}
        assert found.followed_count == 3


async def test_partition_moves_to_its_new_leader_and_the_last_one_ends_a_fetcher() -> None:
    async with fetchers() as found:
        a, b = Follower("a"), Follower("b")
        found.follow([a.partition, b.partition])
        a.be(THIRD)
        found.follow([a.partition])
        assert found.leaders == {ELSEWHERE: 1, THIRD: 1}
        b.be(THIRD)
        found.follow([b.partition])
        assert found.leaders == {THIRD: 2}


async def test_partition_that_is_led_here_or_by_nobody_is_not_fetched() -> None:
    async with fetchers() as found:
        a, b = Follower("a"), Follower("b")
        found.follow([a.partition, b.partition])
        a.be(HERE)
        b.be(NO_LEADER)
        found.follow([a.partition, b.partition])
        assert found.leaders == {}
        found.follow([a.partition])
        assert found.leaders == {}


async def test_partition_that_is_not_served_any_more_is_not_fetched_and_its_successor_is() -> None:
    async with fetchers() as found:
        old, new = Follower("t"), Follower("t")
        found.follow([old.partition])
        old.partition.retire(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # Also when the end of the old one is reported after the start of the new one.
        found.follow([new.partition, old.partition])
        assert found.leaders == {ELSEWHERE: 1}
        new.be(THIRD)
        found.follow([new.partition])
        assert found.leaders == {THIRD: 1}
        new.partition.retire(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found.follow([new.partition])
        assert found.leaders == {}


async def test_leader_that_is_not_registered_is_looked_up_again_and_again() -> None:
    async with fetchers() as found:
        found.follow([Follower("a").partition])
        async with asyncio.timeout(10):
            assert {await found.asked.get() for _ in range(3)} == {ELSEWHERE}


async def test_nothing_is_followed_after_the_stop() -> None:
    async with fetchers() as found:
        a = Follower("a")
        found.follow([a.partition])
        await found.stop()
        found.follow([a.partition])
        assert found.leaders == {}


async def test_log_that_accepts_no_appends_is_reported_until_it_is_followed_again() -> None:
    async with fetchers() as found:
        a = Follower("a")
        found.follow([a.partition])
        found._on_partition_failed(a.partition)
        assert found.failed_logs == [a.partition.topic_partition]
        registry = CollectorRegistry()
        registry.add(lambda: replica_fetcher_metrics(found))
        shown = "".join(registry.chunks()).splitlines()
        assert "kafka_server_replicafetchermanager_failedpartitionscount 1" in shown
        assert "kafka_server_replicafetchermanager_partitioncount 1" in shown
        assert "kafka_server_fetcherstats_requests_total 0" in shown
        found.follow([a.partition])
        assert found.failed_count == 0


async def test_partition_whose_log_failed_is_not_fetched_in_a_new_epoch_either() -> None:
    async with fetchers() as found:
        a, b = Follower("a"), Follower("b")
        found.follow([a.partition, b.partition])
        a.log.take_offline(LogOffline("no disk"))
        found.follow([a.partition])
        assert found.leaders == {ELSEWHERE: 1}
        found._on_partition_failed(a.partition)
        a.be(THIRD)
        found.follow([a.partition])
        assert found.leaders == {ELSEWHERE: 1}
        assert found.failed_count == 1


async def test_nothing_is_left_of_a_failed_partition_that_is_not_served_any_more() -> None:
    async with fetchers() as found:
        a, b = Follower("a"), Follower("b")
        found.follow([a.partition, b.partition])
        a.log.take_offline(LogOffline("no disk"))
        assert found._fetchers[ELSEWHERE].remove(a.partition)
        found._on_partition_failed(a.partition)
        assert found.failed_count == 1
        a.partition.retire(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        found.follow([a.partition])
        assert found.failed_count == 0
        assert found._leader_of == {(b.partition.topic_id_bytes, 0): ELSEWHERE}


async def test_partition_that_left_the_in_sync_replicas_for_a_stuck_disk_is_fetched_when_that_has_recovered() -> None:
    async with fetchers() as found:
        left, stayed = Follower("left"), Follower("stayed")
        found.follow([left.partition, stayed.partition])
        found.is_disk_stuck = True
        left.be(ELSEWHERE, (ELSEWHERE, THIRD))
        found.follow([left.partition, stayed.partition])
        # The other one is needed: the in-sync replicas would be too few.
        assert found.leaders == {ELSEWHERE: 1}
        found.is_disk_stuck = False
        found.follow([left.partition, stayed.partition])
        assert found.leaders == {ELSEWHERE: 2}

"""Brokers of one process over one tree: each knows the others, and any of them changes topics for all."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.context import NewTopic
from ottla.broker.net.advertising import BrokerAddress
from ottla.broker.tree.tree_backend import TreeBackend
from ottla.coordination.broker_registry import BrokerIdTaken
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.tree import ConnectionLoss, Node, Operation, Stat, Tree, Watch
from ottla.model.error_code import ErrorCode
from ottla.model.errors import RequestError
from ottla.model.listener import Listener
from ottla.model.serve_options import ServeOptions
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import SystemClock
from tests.contract.unsure_tree import UnsureTree
from tests.eventually import eventually_on_loop


class Shared:
    """A tree in a file, and the brokers over it."""

    def __init__(self, home: EmbeddedBackend, path: Path) -> None:
        self.home = home
        self.path = path
        self.running: dict[int, Broker] = {}

    async def start(self, node_id: int, *, directory: str | None = None, **settings: str) -> Broker:
        return await self.start_over(self.home, node_id, directory, settings)

    async def start_over(
        self, home: TreeBackend, node_id: int, directory: str | None, settings: Mapping[str, str]
    ) -> Broker:
        """Start a broker whose sessions are those of `home`."""
        options = ServeOptions(
            settings=BrokerSettings.of(
                {"node.id": str(node_id), **{name.replace("_", "."): text for name, text in settings.items()}}
            ),
            data_dir=str(self.path / (directory or f"broker-{node_id}")),
            listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),),
        )
        started = await Broker.start(options, clock=SystemClock(), open_files_max=None, backend=home)
        self.running[node_id] = started
        return started

    async def stop(self, node_id: int) -> None:
        await self.running.pop(node_id).stop()


@asynccontextmanager
async def shared(path: Path) -> AsyncIterator[Shared]:
    home = await EmbeddedBackend.open(str(path / "tree"))
    brokers = Shared(home, path)
    try:
        yield brokers
    finally:
        for node_id in list(brokers.running):
            await brokers.stop(node_id)
        await home.close()


def addresses(broker: Broker) -> list[BrokerAddress]:
    return broker.context.brokers.addresses_for(broker.addresses[0])


async def test_every_broker_returns_the_same_addresses_and_controller(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second, third = [await brokers.start(node_id, broker_rack=f"r{node_id}") for node_id in (1, 2, 3)]
        await eventually_on_loop(
            lambda: len(first.context.brokers.live.by_id) == len(second.context.brokers.live.by_id) == 3
        )
        assert addresses(first) == addresses(second) == addresses(third)
        assert addresses(first) == [
            BrokerAddress(broker.node_id, *broker.addresses[0], f"r{broker.node_id}")
            for broker in (first, second, third)
        ]
        assert (
            first.context.brokers.controller_id
            == second.context.brokers.controller_id
            == third.context.brokers.controller_id
            == 1
        )
        assert first.cluster_id == second.cluster_id == third.cluster_id


class BreakingTree(UnsureTree):
    """Request number `breaks_at` is not answered; one that writes may have been done."""

    def __init__(self, tree: Tree, breaks_at: int) -> None:
        super().__init__(tree)
        self.left = breaks_at

    def _ask(self, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise ConnectionLoss(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        done = await super().multi(operations)
        self._ask(operations[0].path)
        return done

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        self._ask(path)
        return await super().get(path, watch=watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._ask(next(iter(paths), "/"))
        return await super().get_many(paths)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        self._ask(path)
        return await super().children(path, watch=watch)

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        self._ask(path)
        return await super().exists(path, watch=watch)

    async def sync(self) -> None:
        self._ask("/")
        await super().sync()


class BreakingHome:
    """`TreeBackend` of one broker."""

    def __init__(self, home: EmbeddedBackend, breaks_at: int) -> None:
        self._home = home
        self._breaks_at = breaks_at
        self.tree: BreakingTree | None = None

    async def connect(self) -> Tree:
        self.tree = BreakingTree(await self._home.connect(), self._breaks_at)
        return self.tree

    async def close(self) -> None:
        """Other brokers share the tree."""


async def test_broker_starts_although_the_connection_to_the_tree_breaks_at_any_request(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first = await brokers.start(1)
        await first.context.topic_admin.create(NewTopic("orders", 2, 1))
        for breaks_at in itertools.count(1):
            home = BreakingHome(brokers.home, breaks_at)
            second = await brokers.start_over(home, 2, None, {})
            assert set(second.context.brokers.live.by_id) >= {2}
            assert second.context.topics.by_name.keys() == {"orders"}
            await brokers.stop(2)
            assert home.tree is not None
            if home.tree.left > 0:
                break
    assert breaks_at > 10, "a start asks the tree for more than that"


async def test_broker_that_stops_is_forgotten_at_once(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        await brokers.start(1)
        other = await brokers.start(2)
        await brokers.stop(1)
        await eventually_on_loop(lambda: set(other.context.brokers.live.by_id) == {2})
        assert other.context.brokers.controller_id == 2


async def test_topic_created_by_one_broker_is_known_to_all_and_spread_over_them(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(lambda: len(first.context.brokers.live.by_id) == 2)
        topic = await first.context.topic_admin.create(NewTopic("orders", 4))
        assert sorted(partition.state.leader for partition in topic.partitions) == [1, 1, 2, 2]
        await eventually_on_loop(lambda: second.context.topics.by_id.get(topic.topic_id) is not None)
        for broker in (first, second):
            here = {index for index in range(4) if broker.context.partitions.find("orders", index) is not None}
            assert here == {index for index in range(4) if topic.partitions[index].replicas == (broker.node_id,)}


async def test_topic_is_changed_by_a_broker_without_a_replica_of_it(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(
            lambda: len(first.context.brokers.live.by_id) == len(second.context.brokers.live.by_id) == 2
        )
        await first.context.topic_admin.create(NewTopic("orders", assignment={0: [1]}))
        await eventually_on_loop(lambda: "orders" in second.context.topics.by_name)
        await second.context.topic_admin.add_partitions("orders", 2, [[1]])
        await eventually_on_loop(lambda: first.context.partitions.find("orders", 1) is not None)
        await second.context.topic_admin.delete("orders")
        await eventually_on_loop(lambda: first.context.partitions.find("orders", 0) is None)
        assert "orders" not in first.context.topics.by_name
        await eventually_on_loop(lambda: not list((tmp_path / "broker-1").glob("orders-?")))


async def test_offsets_of_groups_of_other_coordinators_are_not_deleted(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first, second = await brokers.start(1), await brokers.start(2)
        await eventually_on_loop(
            lambda: len(first.context.brokers.live.by_id) == len(second.context.brokers.live.by_id) == 2
        )
        await first.context.topic_admin.create(NewTopic("__consumer_offsets", assignment={0: [1]}))
        await eventually_on_loop(lambda: "__consumer_offsets" in second.context.topics.by_name)
        with pytest.raises(RequestError) as refusal:
            await second.context.topic_admin.delete("__consumer_offsets")
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_more_replicas_than_brokers_are_refused(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        first = await brokers.start(1)
        with pytest.raises(RequestError) as refusal:
            await first.context.topic_admin.create(NewTopic("orders", 1, 2))
        assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_second_broker_of_one_id_is_refused(tmp_path: Path) -> None:
    async with shared(tmp_path) as brokers:
        await brokers.start(1)
        with pytest.raises(BrokerIdTaken):
            await brokers.start(1, directory="another")

"""Cluster id, broker registry and producer ids over every home."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from ottla.coordination import layout
from ottla.coordination.broker_registry import (
    BrokerIdTaken,
    BrokerListener,
    BrokerRegistration,
    BrokerRegistry,
    BrokersView,
    LiveBroker,
    cluster_id,
)
from ottla.coordination.features import (
    TRANSACTION_VERSION,
    FeatureNotSupported,
    FeatureRegistry,
    FeaturesView,
    levels_to_raise,
    require_supported,
    supported_by_all,
)
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.producer_ids import BLOCK_IDS_COUNT, PRODUCER_ID_MAX, ProducerIdBlocks, ProducerIdsExhausted
from ottla.coordination.topics_view import PartitionNode, Topic, TopicsView
from ottla.coordination.tree import ANY_VERSION, ConnectionLoss, Node, Tree, Watch
from ottla.model.identifiers import LeaderEpoch, NodeId
from ottla.model.partition_state import PartitionState, ReplicaIncarnation
from tests.contract.tree_backends import TreeBackend, until
from tests.contract.unsure_tree import UnsureTree

ONE, TWO = NodeId(1), NodeId(2)
FIRST = BrokerRegistration(
    ONE,
    (BrokerListener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092), BrokerListener("INTERNAL", "SSL", "::1", 9093)),
    "rack-a",
)
SECOND = BrokerRegistration(TWO, (BrokerListener("PLAINTEXT", "PLAINTEXT", "host", 9092),))


@asynccontextmanager
async def laid_out(home: TreeBackend) -> AsyncIterator[Tree]:
    async with home.running() as running:
        tree = await running.connect()
        await layout.lay_out(tree)
        yield tree


async def test_layout_is_created_once_by_the_first_session(home: TreeBackend) -> None:
    async with home.running() as running:
        trees = [await running.connect() for _ in range(3)]
        await asyncio.gather(*(layout.lay_out(tree) for tree in trees))
        before = (await trees[0].get(layout.TOPICS)).stat
        await layout.lay_out(trees[0])
        assert (await trees[0].get(layout.TOPICS)).stat == before


async def test_cluster_id_is_created_once_in_kafkas_form_and_stays(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        made = await asyncio.gather(*(cluster_id(tree) for _ in range(5)))
        assert len(set(made)) == 1
        assert len(made[0]) == 22
    async with laid_out(home) as tree:
        assert await cluster_id(tree) == made[0]


async def test_registered_brokers_are_seen_with_all_fields_and_their_epoch(home: TreeBackend) -> None:
    async with home.running() as running:
        one, two = await running.connect(), await running.connect()
        await layout.lay_out(one)
        first_epoch = await BrokerRegistry(one).register(FIRST, 1)
        second_epoch = await BrokerRegistry(two).register(SECOND, 2)
        view = await BrokerRegistry(one).refresh()
        assert {node_id: broker.registration for node_id, broker in view.by_id.items()} == {ONE: FIRST, TWO: SECOND}
        assert view.epochs() == {ONE: first_epoch, TWO: second_epoch}
        assert (await one.get("/brokers/ids/2")).stat.czxid == second_epoch


async def test_time_of_a_registration_is_by_the_clock_of_all_nodes(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = BrokerRegistry(tree)
        assert await registry.registered_ms(ONE) is None
        await tree.create("/before", b"")
        an_hour_ahead_ms = time.time_ns() // 1_000_000 + 3_600_000
        await registry.register(FIRST, an_hour_ahead_ms)
        before, registered_ms = await tree.exists("/before"), await registry.registered_ms(ONE)
        assert before is not None
        assert registered_ms is not None
        assert before.ctime_ms <= registered_ms < an_hour_ahead_ms


async def test_broker_that_leaves_is_removed_from_the_view(home: TreeBackend) -> None:
    async with home.running() as running:
        one, two = await running.connect(), await running.connect()
        await layout.lay_out(one)
        told: list[None] = []
        registry = BrokerRegistry(one, on_stale=lambda: told.append(None))
        await registry.register(FIRST, 1)
        before = await registry.refresh()
        assert await registry.refresh() is before
        await BrokerRegistry(two).register(SECOND, 1)
        await until(lambda: len(told) == 1)
        assert set((await registry.refresh()).by_id) == {ONE, TWO}
        await two.close()
        await until(lambda: len(told) == 2)
        assert set((await registry.refresh()).by_id) == {ONE}


async def test_broker_id_of_another_session_is_refused_until_that_session_ends(home: TreeBackend) -> None:
    async with home.running() as running:
        one, two = await running.connect(), await running.connect()
        await layout.lay_out(one)
        first_epoch = await BrokerRegistry(one).register(FIRST, 1)
        with pytest.raises(BrokerIdTaken, match="another session"):
            await BrokerRegistry(two).register(FIRST, 1)
        await one.close()
        gone: list[None] = []
        if await two.exists("/brokers/ids/1", watch=lambda: gone.append(None)) is not None:
            await until(lambda: bool(gone))
        assert await BrokerRegistry(two).register(FIRST, 1) > first_epoch


async def test_registering_again_in_the_same_session_gives_a_higher_epoch(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = BrokerRegistry(tree)
        first = await registry.register(FIRST, 1)
        assert await registry.register(FIRST._replace(rack="rack-b"), 1) > first
        assert (await registry.refresh()).by_id[ONE].registration.rack == "rack-b"


async def test_broker_epochs_rise_over_restarts(home: TreeBackend) -> None:
    epochs: list[int] = []
    for _ in range(3):
        async with laid_out(home) as tree:
            epochs.append(await BrokerRegistry(tree).register(FIRST, 1))
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("7", b"not json"),
        ("7", b"[]"),
        ("7", b'{"version":99}'),
        (
            "7",
            b'{"version":1,"endpoints":["PLAINTEXT://h"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
        ),
        ("7", b'{"version":1,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":{}}'),
        ("x", b"{}"),
    ],
)
async def test_malformed_registration_is_named(home: TreeBackend, name: str, data: bytes) -> None:
    async with laid_out(home) as tree:
        await tree.create(f"/brokers/ids/{name}", data)
        with pytest.raises(NodeDamaged, match=f"/brokers/ids/{name}"):
            await BrokerRegistry(tree).refresh()


async def test_producer_ids_are_unique_among_brokers_tasks_and_restarts(home: TreeBackend) -> None:
    given: list[int] = []
    for _ in range(2):
        async with laid_out(home) as tree:
            suppliers = [ProducerIdBlocks(tree, ONE), ProducerIdBlocks(tree, TWO)]
            given += await asyncio.gather(
                *(supplier.next() for supplier in suppliers for _ in range(BLOCK_IDS_COUNT + 5))
            )
    assert len(set(given)) == len(given) == 4 * (BLOCK_IDS_COUNT + 5)
    assert min(given) == 0


async def test_producer_ids_come_in_order_from_one_block(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        supplier = ProducerIdBlocks(tree, ONE)
        assert [await supplier.next() for _ in range(3)] == [0, 1, 2]
        node = await tree.get(layout.PRODUCER_ID_BLOCK)
        assert node.data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'


async def test_producer_id_block_of_unknown_outcome_is_left_unused(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        unsure = UnsureTree(tree)
        unsure.lose_answers = 2
        assert await ProducerIdBlocks(unsure, ONE).next() == 2 * BLOCK_IDS_COUNT


async def test_producer_ids_start_above_those_in_the_logs_when_the_tree_is_older(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        supplier = ProducerIdBlocks(tree, ONE)
        assert await supplier.next() == 0
        supplier.begin_at(500)
        assert await supplier.next() == 500
        supplier.begin_at(41_234)
        assert [await supplier.next() for _ in range(2)] == [41_234, 41_235]
        supplier.begin_at(7)
        assert await supplier.next() == 41_236
        assert await ProducerIdBlocks(tree, TWO).next() == 41_234 + BLOCK_IDS_COUNT
        behind = ProducerIdBlocks(tree, TWO)
        behind.begin_at(3)
        assert await behind.next() == 41_234 + 2 * BLOCK_IDS_COUNT


async def test_producer_ids_end_with_a_clear_error(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        await ProducerIdBlocks(tree, ONE).next()
        last = b'{"version":1,"block_end":"%d"}' % (PRODUCER_ID_MAX - 10)
        await tree.set(layout.PRODUCER_ID_BLOCK, last, ANY_VERSION)
        with pytest.raises(ProducerIdsExhausted):
            await ProducerIdBlocks(tree, ONE).next()
        await tree.set(layout.PRODUCER_ID_BLOCK, b'{"version":1,"block_end":"x"}', ANY_VERSION)
        with pytest.raises(NodeDamaged):
            await ProducerIdBlocks(tree, ONE).next()


async def test_broken_connection_while_reading_is_raised_after_a_bounded_number_of_attempts(home: TreeBackend) -> None:
    class Cut(UnsureTree):
        async def get(self, path: str, *, watch: Watch | None = None) -> Node:
            raise ConnectionLoss(path)

    async with laid_out(home) as tree:
        with pytest.raises(ConnectionLoss):
            await ProducerIdBlocks(Cut(tree), ONE).next()


async def test_finalized_level_rises_and_never_falls(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        features = FeatureRegistry(tree)
        assert await features.refresh() == FeaturesView()
        assert (await features.finalize({})).epoch == -1
        assert await features.finalize({TRANSACTION_VERSION: 1}) == FeaturesView(0, {TRANSACTION_VERSION: 1})
        assert (await features.finalize({TRANSACTION_VERSION: 2})).epoch == 1
        assert await features.finalize({TRANSACTION_VERSION: 1}) == FeaturesView(1, {TRANSACTION_VERSION: 2})
        assert await FeatureRegistry(tree).refresh() == features.view


async def test_brokers_that_finalize_at_once_agree_on_the_higher_level(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registries = [FeatureRegistry(tree) for _ in range(3)]
        levels = [{TRANSACTION_VERSION: level} for level in (1, 2, 1)]
        await asyncio.gather(*(registry.finalize(level) for registry, level in zip(registries, levels, strict=True)))
        # One that lost the race to a lower level raises it with its next view of the tree.
        await registries[1].finalize(levels[1])
        assert [dict((await registry.refresh()).finalized) for registry in registries] == 3 * [levels[1]]


async def test_registration_says_which_features_the_broker_supports(home: TreeBackend) -> None:
    async with laid_out(home) as tree:
        registry = BrokerRegistry(tree)
        await registry.register(FIRST._replace(features={TRANSACTION_VERSION: 2}), 1_000)
        view = await registry.refresh()
        assert view.by_id[ONE].registration.features == {TRANSACTION_VERSION: 2}


@pytest.mark.parametrize(
    ("of_each", "common"),
    [([2], 2), ([2, 2, 2], 2), ([2, 1], 1), ([2, None], None), ([], None)],
    ids=["one", "all", "lower", "older-broker", "none"],
)
def test_level_that_all_live_brokers_support_is_their_least(of_each: list[int | None], common: int | None) -> None:
    found = supported_by_all(live(dict(enumerate(of_each))), {TRANSACTION_VERSION: 2})
    assert found == ({} if common is None else {TRANSACTION_VERSION: common})


def live(levels: Mapping[int, int | None]) -> BrokersView:
    """The live brokers, with their levels of `transaction.version`; None: of a program that does not know it."""
    return BrokersView(
        1,
        {
            NodeId(number): LiveBroker(
                FIRST._replace(features={} if level is None else {TRANSACTION_VERSION: level}), number
            )
            for number, level in levels.items()
        },
    )


def topics_on(*brokers: int) -> TopicsView:
    """One topic with a replica on each."""
    replicas = tuple(NodeId(each) for each in brokers)
    state = PartitionState(replicas[0], LeaderEpoch(0), (ReplicaIncarnation(replicas[0], 1),))
    return TopicsView.of(1, {"t": Topic("t", UUID(int=1), (PartitionNode(0, replicas, state, 0),))})


def test_program_without_a_finalized_level_is_refused() -> None:
    require_supported({}, RAISED)
    require_supported({TRANSACTION_VERSION: 1}, RAISED)
    require_supported({TRANSACTION_VERSION: 2}, RAISED)
    with pytest.raises(FeatureNotSupported, match=r"transaction\.version at level 3, this program supports level 2"):
        require_supported({TRANSACTION_VERSION: 3}, RAISED)
    with pytest.raises(FeatureNotSupported, match="new at level 1, this program supports level 0"):
        require_supported({"new": 1, TRANSACTION_VERSION: 2}, RAISED)


NO_TOPICS = TopicsView.of(0, {})
RAISED = {TRANSACTION_VERSION: 2}


def test_first_broker_of_a_new_cluster_raises_the_level() -> None:
    assert levels_to_raise({}, live({1: 2}), NO_TOPICS, RAISED) == RAISED


def test_level_is_not_raised_at_a_cold_start_before_every_broker_with_replicas_is_live() -> None:
    """The others may come with an older program, which does not support the level."""
    topics = topics_on(1, 2, 3)
    assert levels_to_raise({}, live({1: 2}), topics, RAISED) == {}
    assert levels_to_raise({}, live({1: 2, 2: 2}), topics, RAISED) == {}
    assert levels_to_raise({}, live({1: 2, 2: 2, 3: None}), topics, RAISED) == {}
    assert levels_to_raise({}, live({1: 2, 2: 2, 3: 2}), topics, RAISED) == RAISED


def test_level_is_not_raised_while_a_live_broker_without_replicas_is_older() -> None:
    assert levels_to_raise({}, live({1: 2, 4: None}), topics_on(1), RAISED) == {}
    assert levels_to_raise({}, live({1: 2, 4: 2}), topics_on(1), RAISED) == RAISED


def test_level_that_is_finalized_is_raised_by_higher_ones_only() -> None:
    one_of_both, both = live({1: 2, 2: 3}), live({1: 3, 2: 3})
    assert levels_to_raise({TRANSACTION_VERSION: 2}, one_of_both, topics_on(1, 2), {TRANSACTION_VERSION: 3}) == {}
    assert levels_to_raise({TRANSACTION_VERSION: 2}, live({1: None}), topics_on(1), RAISED) == {}
    assert levels_to_raise({TRANSACTION_VERSION: 2}, both, topics_on(1, 2), {TRANSACTION_VERSION: 3}) == {
        TRANSACTION_VERSION: 3
    }

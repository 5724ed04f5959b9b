"""The view of a tree from outside, by `ottla doctor`."""

from __future__ import annotations

import asyncio

import pytest

from ottla.coordination import layout
from ottla.coordination.broker_registry import (
    BrokerListener,
    BrokerRegistration,
    BrokerRegistry,
    cluster_id,
    encode_registration,
)
from ottla.coordination.node_json import NodeDamaged
from ottla.coordination.zookeeper.backend import ZooKeeperBackend
from ottla.coordination.zookeeper.inspection import TreeInspection, inspect_tree
from ottla.coordination.zookeeper.security import UNSECURED
from ottla.model.identifiers import NodeId
from ottla.runtime.clock import SystemClock

REGISTRATION = BrokerRegistration(NodeId(7), (BrokerListener("PLAINTEXT", "PLAINTEXT", "localhost", 9092),), "r1")


async def inspected(connect: str) -> TreeInspection:
    return await asyncio.to_thread(inspect_tree, connect, UNSECURED, 30.0)


async def test_registered_broker_is_seen_with_the_offset_of_its_clock(connect: str) -> None:
    session = await ZooKeeperBackend(connect).connect()
    assert (await inspected(connect)).cluster_id is None
    await layout.lay_out(session)
    known = await cluster_id(session)
    await BrokerRegistry(session).register(REGISTRATION, SystemClock().now_ms() + 1_000_000)
    seen = await inspected(connect)
    assert seen.cluster_id == known
    assert seen.brokers[NodeId(7)].registration == REGISTRATION
    assert 900_000 < seen.brokers[NodeId(7)].ahead_ms < 1_100_000
    assert layout.TOPICS in seen.open_paths
    await session.close()


@pytest.mark.parametrize(
    ("name", "data"),
    [("x", b"{}"), ("7", b"not json"), ("7", encode_registration(REGISTRATION, 1).replace(b'"1"', b'"soon"'))],
)
async def test_malformed_registration_is_named(connect: str, name: str, data: bytes) -> None:
    session = await ZooKeeperBackend(connect).connect()
    await layout.lay_out(session)
    await cluster_id(session)
    await session.create(f"{layout.BROKER_IDS}/{name}", data)
    with pytest.raises(NodeDamaged, match=f"{layout.BROKER_IDS}/{name}"):
        await inspected(connect)
    await session.close()

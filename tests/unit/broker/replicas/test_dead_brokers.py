"""A follower whose connection closed is probed; a leader is taken for dead only when several looks are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.partition_table import PartitionTable
from ottla.broker.replicas.dead_brokers import LOOKS_AFTER_S, PROBES_AFTER_S, Address, GoneFollowers, RefusedLeaders
from ottla.model.identifiers import NodeId
from tests.run_async import pytest_pyfunc_call
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of

__all__ = ["pytest_pyfunc_call"]

ADDRESS = ("127.0.0.1", 9093)


class OnePartition(PartitionTable):
    """A table with one partition that notes the followers reported as gone."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []

    def __iter__(self):  # type: ignore[no-untyped-def]
        yield self

    def on_follower_gone(self, node_id: NodeId, broker_epoch: int) -> bool:
        self.told.append((node_id, broker_epoch))
        return True


class Network:
    """Answers probes: one answer each, the last one for ever."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.probed: list[Address] = []
        self.slept_s: list[float] = []

    async def is_refused(self, address: Address) -> bool:
        self.probed.append(address)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        await asyncio.sleep(0)


async def probed(network: Network, *, is_live: bool = True) -> tuple[OnePartition, Sequence[Partition]]:
    table = OnePartition()
    looked_at: list[Partition] = []
    gone = GoneFollowers(
        table, looked_at.append, lambda _: ADDRESS if is_live else None, network.is_refused, network.sleep
    )
    gone.on_connection_closed(NodeId(2), 12)
    gone.on_connection_closed(NodeId(2), 12)  # a follower may have had several connections
    async with asyncio.timeout(10):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 (no handle of the probe's task exists)
            await asyncio.sleep(0)
    await gone.stop()
    return table, looked_at


async def test_follower_that_refuses_connections_is_gone() -> None:
    table, looked_at = await probed(Network(True))
    assert table.told == [(2, 12)]
    assert len(looked_at) == 1


async def test_listener_that_closes_a_little_later_than_the_connection_is_found() -> None:
    network = Network(False, False, True)
    table, _ = await probed(network)
    assert table.told == [(2, 12)]
    assert network.slept_s == list(PROBES_AFTER_S[:3])


async def test_follower_that_still_listens_stays() -> None:
    network = Network(False)
    table, looked_at = await probed(network)
    assert len(network.probed) == len(PROBES_AFTER_S)
    assert (table.told, looked_at) == ([], [])


async def test_follower_whose_registration_ended_too_is_not_probed() -> None:
    network = Network(True)
    table, _ = await probed(network, is_live=False)
    assert (table.told, network.probed) == ([], [])


class Looked:
    """What became of a refusal by the leader elsewhere."""

    def __init__(self, network: Network) -> None:
        self.lifecycle = one_of(HERE, ELSEWHERE)
        self.address: tuple[str, int] | None = ADDRESS
        self.gone: list[tuple[int, int]] = []
        self.leaders = RefusedLeaders(
            self.lifecycle,
            lambda _: self.address,
            lambda node_id, broker_epoch: self.gone.append((node_id, broker_epoch)),
            network.is_refused,
            network.sleep,
        )

    async def settle(self) -> None:
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 (no handle of the task exists)
                await asyncio.sleep(0)


async def test_leader_that_refuses_every_look_is_gone() -> None:
    network = Network(True)
    looked = Looked(network)
    looked.leaders.on_refused(ELSEWHERE)
    assert looked.gone == [], "one refusal is not enough"
    await looked.settle()
    assert looked.gone == [(ELSEWHERE, 10 * ELSEWHERE)]
    assert network.slept_s == list(LOOKS_AFTER_S)


@pytest.mark.parametrize("answers", [(False,), (True, False)], ids=["at once", "at the last look"])
async def test_leader_that_listens_again_leads_on(answers: tuple[bool, ...]) -> None:
    looked = Looked(Network(*answers))
    looked.leaders.on_refused(ELSEWHERE)
    await looked.settle()
    assert looked.gone == []
    looked.leaders.on_refused(ELSEWHERE)
    await looked.settle()
    assert looked.gone == [], "the next refusal begins from the start"


async def test_leader_is_looked_at_once_however_often_it_refuses_meanwhile() -> None:
    network = Network(True)
    looked = Looked(network)
    for _ in range(5):
        looked.leaders.on_refused(ELSEWHERE)
    await looked.settle()
    assert len(network.probed) == len(LOOKS_AFTER_S)
    assert len(looked.gone) == 1


async def test_leader_that_registered_again_meanwhile_is_not_gone() -> None:
    looked = Looked(Network(True))
    looked.leaders.on_refused(ELSEWHERE)
    looked.lifecycle.live = {**looked.lifecycle.live, ELSEWHERE: 77}
    await looked.settle()
    assert looked.gone == []


async def test_leader_whose_registration_has_ended_is_left_to_the_election_after_it() -> None:
    looked = Looked(Network(True))
    looked.leaders.on_refused(ELSEWHERE)
    looked.address = None
    await looked.settle()
    assert looked.gone == []


async def test_nothing_is_looked_at_after_a_stop() -> None:
    looked = Looked(Network(True))
    looked.leaders.on_refused(ELSEWHERE)
    await looked.leaders.stop()
    looked.leaders.on_refused(NodeId(ELSEWHERE))
    await looked.settle()
    assert looked.gone == []

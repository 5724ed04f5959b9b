"""A leader is taken for dead only when several looks at it are refused."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.replicas.refused_leaders import LOOKS_AFTER_S, RefusedLeaders
from ottla.model.identifiers import NodeId
from tests.run_async import pytest_pyfunc_call
from tests.unit.broker.replicas.test_gone_followers import ADDRESS, Network
from tests.unit.broker.roles import ELSEWHERE, HERE, one_of

__all__ = ["pytest_pyfunc_call"]


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

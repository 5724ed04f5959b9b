"""A broker registers for the life of a session, and waits for a node id that its former session still holds."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker.tree.broker_lifecycle import NOT_REGISTERED, BrokerLifecycle
from ottla.broker.tree.registrar import ATTEMPT_INTERVAL_S, Registrar
from ottla.coordination.broker_registry import BrokerIdTaken, BrokerListener, BrokerRegistration, BrokerRegistry
from ottla.coordination.embedded.backend import EmbeddedBackend, EmbeddedSession
from ottla.coordination.layout import lay_out
from ottla.model.identifiers import NodeId
from ottla.storage.errors import StorageError
from ottla.testing.fake_clock import FakeClock

LISTENERS = (BrokerListener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)


class Waits:
    """The pauses of a registrar: time passes in them, and at one of them something happens."""

    def __init__(self, clock: FakeClock, ends: EmbeddedSession | None = None, at: int = 3) -> None:
        self.count = 0
        self._clock = clock
        self._ends = ends
        self._at = at

    async def __call__(self, seconds: float) -> None:
        self.count += 1
        self._clock.advance(round(seconds * 1000))
        if self._ends is not None and self.count == self._at:
            await self._ends.close()


async def registrar(home: EmbeddedBackend, node_id: int = 1, waits: Waits | None = None) -> Registrar:
    session = await home.connect()
    await lay_out(session)
    clock = FakeClock()
    return made(session, node_id, clock, waits or Waits(clock))


def made(session: EmbeddedSession, node_id: int, clock: FakeClock, waits: Waits) -> Registrar:
    registration = BrokerRegistration(NodeId(node_id), LISTENERS)
    return Registrar(BrokerLifecycle(NodeId(node_id)), BrokerRegistry(session), registration, session, clock, waits)


async def test_registered_brokers_see_each_other(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    first, second = await registrar(home, 1), await registrar(home, 2)
    epochs = {1: await first.register(), 2: await second.register()}
    await first.refresh()
    assert first.view.epochs() == second.view.epochs() == epochs
    assert epochs[1] < epochs[2]
    await home.close()


async def test_registering_again_gives_a_higher_epoch(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    only = await registrar(home)
    before = await only.register()
    after = await only.register()
    assert after > before
    assert only.view.epochs() == {1: after}
    await home.close()


async def test_lifecycle_has_the_live_brokers_of_the_tree(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    session, clock = await home.connect(), FakeClock()
    await lay_out(session)
    lifecycle = BrokerLifecycle(NodeId(1))
    registration = BrokerRegistration(NodeId(1), LISTENERS)
    own = Registrar(lifecycle, BrokerRegistry(session), registration, session, clock, Waits(clock))
    epoch = await own.register()
    assert (lifecycle.broker_epoch, dict(lifecycle.live)) == (epoch, {1: epoch})
    other = await (await registrar(home, 2)).register()
    await own.refresh()
    assert dict(lifecycle.live) == {1: epoch, 2: other}
    await home.close()


async def test_nothing_can_be_done_under_an_epoch_that_is_not_recorded_yet(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    session, clock = await home.connect(), FakeClock()
    await lay_out(session)
    lifecycle = BrokerLifecycle(NodeId(1))
    registration = BrokerRegistration(NodeId(1), LISTENERS)
    own = Registrar(lifecycle, BrokerRegistry(session), registration, session, clock, Waits(clock))
    recorded: list[int] = []
    known: list[int] = []

    async def full_disk(_: int) -> None:
        raise StorageError("no room")

    async def record(broker_epoch: int) -> None:
        recorded.append(broker_epoch)
        known.append(lifecycle.broker_epoch)

    with pytest.raises(StorageError, match="no room"):
        await own.register(record=full_disk)
    assert lifecycle.broker_epoch == NOT_REGISTERED
    # The same session asks again, and its former registration is replaced.
    epoch = await own.register(record=record)
    assert (recorded, known) == ([epoch], [NOT_REGISTERED])
    assert lifecycle.broker_epoch == epoch
    await home.close()


async def test_id_of_a_former_session_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    former = await home.connect()
    await lay_out(former)
    await BrokerRegistry(former).register(BrokerRegistration(NodeId(1), LISTENERS), 0)
    clock = FakeClock()
    waits = Waits(clock, ends=former, at=3)
    later = made(await home.connect(), 1, clock, waits)
    with caplog.at_level(logging.WARNING):
        await later.register(patience_ms=6000)
    assert waits.count == 3
    assert [record.getMessage() for record in caplog.records] == ["broker.id_in_use"]
    await home.close()


async def test_id_of_another_broker_is_refused_when_the_patience_is_over(tmp_path: Path) -> None:
    home = await EmbeddedBackend.open(str(tmp_path / "tree"))
    await (await registrar(home)).register()
    clock = FakeClock()
    waits = Waits(clock)
    other = made(await home.connect(), 1, clock, waits)
    with pytest.raises(BrokerIdTaken, match="broker id 1 is registered by another session") as refusal:
        await other.register(patience_ms=2000)
    assert refusal.value.hint is not None
    assert waits.count == round(2 / ATTEMPT_INTERVAL_S)
    await home.close()

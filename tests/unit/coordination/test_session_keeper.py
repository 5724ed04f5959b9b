"""The keeper of sessions, over a home that fails as a test says; `tests/contract` has it over real homes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from ottla.coordination import session_keeper
from ottla.coordination.session_keeper import SessionKeeper
from ottla.coordination.tree import Lease, SessionState, Tree
from ottla.coordination.zookeeper.access import ZooKeeperUnreachable

CONNECTED, LOST = SessionState.CONNECTED, SessionState.LOST


class ScriptedSession:
    """A session that is lost when a test says so."""

    def __init__(self, session_id: int, *, close_fails: bool = False) -> None:
        self.session_id = session_id
        self.state = CONNECTED
        self._close_fails = close_fails
        self._listeners: list[Callable[[SessionState], None]] = []

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def lose(self) -> None:
        self.state = LOST
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(partial(listener, LOST))

    async def close(self) -> None:
        if self._close_fails:
            raise OSError("the client's thread does not end")


class ScriptedHome:
    """Gives the sessions, or raises the errors, in turn."""

    def __init__(self, *outcomes: ScriptedSession | Exception) -> None:
        self._outcomes = list(outcomes)

    async def connect(self, *, lease: Lease | None = None) -> Tree:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return cast("Tree", outcome)


@pytest.mark.parametrize(
    "failure", [ZooKeeperUnreachable("no server answers"), RuntimeError("no thread can be started")]
)
async def test_keeper_retries_when_the_next_session_cannot_start(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    await comes_back_after(ScriptedSession(1), failure, monkeypatch)


async def test_keeper_starts_the_next_session_when_the_lost_one_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await comes_back_after(ScriptedSession(1, close_fails=True), None, monkeypatch)


async def comes_back_after(lost: ScriptedSession, failure: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_keeper, "RETRY_DELAY_S_MIN", 0.0)
    outcomes: list[ScriptedSession | Exception] = [lost, ScriptedSession(2)]
    if failure is not None:
        outcomes.insert(1, failure)
    keeper = await SessionKeeper.open(ScriptedHome(*outcomes))
    heard: list[SessionState] = []
    is_back = asyncio.Event()

    def on_state(state: SessionState) -> None:
        heard.append(state)
        if state is CONNECTED:
            is_back.set()

    keeper.add_session_listener(on_state)
    lost.lose()
    async with asyncio.timeout(10):
        await is_back.wait()
    assert heard == [LOST, CONNECTED]
    assert keeper.session_id == 2
    await keeper.close()

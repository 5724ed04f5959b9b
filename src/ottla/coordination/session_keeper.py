"""One tree over successive sessions: when one is lost, the next is started.

Registries and watches work through a `SessionKeeper` without knowing: a lost session calls its watches, so what they
followed is read again, and those reads fail with `SessionLost` until there is a session.  Only owners of ephemeral
nodes must listen: LOST means that they are gone, CONNECTED (after LOST with another `session_id`) that they can be
recreated.  Listeners receive LOST before the next session starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, Protocol, Self, TypeVar

from ottla.coordination.tree import (
    Lease,
    Node,
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    Tree,
    Watch,
)
from ottla.model.errors import OttlaError
from ottla.observe.events import fields

S = TypeVar("S", bound=Tree)
S_co = TypeVar("S_co", bound=Tree, covariant=True)


class Sessions(Protocol[S_co]):
    """Starts sessions with one tree."""

    async def connect(self, *, lease: Lease | None = None) -> S_co:
        """`lease` is the object that the session extends, for a holder that outlives it."""
        ...


RETRY_DELAY_S_MIN: Final = 0.1
RETRY_DELAY_S_MAX: Final = 2.0

log = logging.getLogger(__name__)


class SessionKeeper(SingleWrites, Generic[S]):
    """`coordination.tree.Tree` over the sessions of a backend; its own state LOST is not final.

    `lease` is one object for all sessions; it ends with each.
    """

    def __init__(self, backend: Sessions[S]) -> None:
        self.lease = Lease()
        self._backend = backend
        # None while there is none.
        self.session: S | None = None
        self._last_id = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, backend: Sessions[S]) -> Self:
        """With the first session.  Raises what the backend's `connect` does."""
        keeper = cls(backend)
        keeper._use(await backend.connect(lease=keeper.lease))
        return keeper

    @property
    def session_id(self) -> int:
        """Of the present session, or of the last one while there is none."""
        return self._last_id

    @property
    def state(self) -> SessionState:
        return SessionState.LOST if self.session is None else self.session.state

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        return await self.present(path).get(path, watch=watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self.present(paths[0] if paths else "/").get_many(paths)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        return await self.present(path).children(path, watch=watch)

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        return await self.present(path).exists(path, watch=watch)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        return await self.present(operations[0].path if operations else "/").multi(operations)

    async def sync(self) -> None:
        await self.present("/").sync()

    async def close(self) -> None:
        """End the present session; there is none after it."""
        self._is_closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        if self.session is not None:
            await self.session.close()

    def present(self, path: str) -> S:
        """The session, for a call about `path`.  Raises `SessionLost` while there is none."""
        if self.session is None:
            raise SessionLost(path)
        return self.session

    def _use(self, session: S) -> None:
        self.session = session
        self._last_id = session.session_id
        session.add_session_listener(partial(self._on_state, session))
        if session.state is SessionState.LOST:
            self._on_state(session, SessionState.LOST)  # before a listener could be added

    def _on_state(self, session: S, state: SessionState) -> None:
        if session is not self.session:
            return
        if state is SessionState.LOST:
            self.session = None
            if not self._is_closed:
                self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(session))
        self._tell(state)

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, state)

    async def _reconnect(self, lost: S) -> None:
        """After any failure there is a next attempt: without a session this broker serves no client."""
        try:
            await lost.close()
        except Exception:
            log.exception("session_keeper.bug")  # the session is over all the same, and so is its lease
        delay_s = RETRY_DELAY_S_MIN
        while True:
            try:
                session = await self._backend.connect(lease=self.lease)
            except OttlaError as error:
                log.warning("tree.connect_failed", extra=fields(error=error, retry_s=delay_s))
            except Exception:
                log.exception("session_keeper.bug")
            else:
                self._use(session)
                if self.session is not None:
                    self._tell(SessionState.CONNECTED)
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_DELAY_S_MAX)

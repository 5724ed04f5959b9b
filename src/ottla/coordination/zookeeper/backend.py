"""A ZooKeeper as a place of trees: makes sessions, and ends those of processes that are gone; and one tree over
successive sessions: when one is lost, the next is started.

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
from typing import Final

from ottla.coordination.tree import (
    Lease,
    Node,
    Operation,
    SessionLost,
    SessionState,
    SingleWrites,
    Stat,
    Watch,
)
from ottla.coordination.zookeeper.access import ConnectString, SessionCredentials
from ottla.coordination.zookeeper.node_access import AccessList
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity
from ottla.coordination.zookeeper.session import ZooKeeperSession
from ottla.model.errors import OttlaError
from ottla.observe.events import fields
from ottla.runtime.clock import Clock

# Kafka's default of zookeeper.session.timeout.ms.
SESSION_TIMEOUT_MS: Final = 18_000


class ZooKeeperBackend:
    """`connect` names the servers and the chroot (`zk1:2181,zk2:2181/ottla`).  Raises `BadConnectString`.

    `security` has the users of its sessions, and with them the rights of the nodes that they create.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int | None = None,
        security: ZooKeeperSecurity = UNSECURED,
        clock: Clock | None = None,
    ) -> None:
        self._connect = ConnectString.parse(connect)
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms or session_timeout_ms
        self.security: Final = security
        self._clock = clock

    async def connect(self, *, lease: Lease | None = None) -> ZooKeeperSession:
        """Start a session; its first read sees everything that was committed before.

        `lease` is the object that it extends, for a holder that outlives the session.  Raises `ZooKeeperUnreachable`,
        `ZooKeeperDistrusted`, `ZooKeeperRefused`, and `ConfigError` for files of TLS that cannot be used.
        """
        session = self._session(lease=lease)
        try:
            await session.open(self._connection_timeout_ms)
        except BaseException:
            await session.close()
            raise
        return session

    async def end_session(self, credentials: SessionCredentials) -> None:
        """End a session of a process that is gone, at once instead of after its timeout; none if it has ended.

        The caller must know that the process is gone (it holds the lock of its data directory): the lease of one that
        lives would hold on.

        Raises `ZooKeeperUnreachable`.
        """
        session = self._session(former=credentials)
        try:
            await session.resume(self._connection_timeout_ms)
        finally:
            await session.close()

    def _session(self, *, lease: Lease | None = None, former: SessionCredentials | None = None) -> ZooKeeperSession:
        return ZooKeeperSession(
            self._connect,
            self._session_timeout_ms,
            security=self.security,
            former=former,
            lease=lease,
            clock=self._clock,
        )


RETRY_DELAY_S_MIN: Final = 0.1
RETRY_DELAY_S_MAX: Final = 2.0

log = logging.getLogger(__name__)


class SessionKeeper(SingleWrites):
    """`coordination.tree.Tree` over the sessions of a `ZooKeeperBackend`; its own state LOST is not final.

    `lease` is one object for all sessions; it ends with each.
    """

    def __init__(self, backend: ZooKeeperBackend) -> None:
        self.lease = Lease()
        self._backend = backend
        self._session: ZooKeeperSession | None = None
        self._last_id = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._reconnecting: asyncio.Task[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, backend: ZooKeeperBackend) -> SessionKeeper:
        """With the first session.  Raises `ZooKeeperUnreachable`, `ZooKeeperDistrusted`, `ZooKeeperRefused`."""
        keeper = cls(backend)
        keeper._use(await backend.connect(lease=keeper.lease))
        return keeper

    @property
    def session_id(self) -> int:
        """Of the present session, or of the last one while there is none."""
        return self._last_id

    @property
    def state(self) -> SessionState:
        return SessionState.LOST if self._session is None else self._session.state

    @property
    def credentials(self) -> SessionCredentials | None:
        """The key of the present session, to be kept where a restarted process finds it."""
        return None if self._session is None else self._session.credentials

    def add_session_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, *, watch: Watch | None = None) -> Node:
        return await self._present(path).get(path, watch=watch)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._present(paths[0] if paths else "/").get_many(paths)

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        return await self._present(path).children(path, watch=watch)

    async def exists(self, path: str, *, watch: Watch | None = None) -> Stat | None:
        return await self._present(path).exists(path, watch=watch)

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        return await self._present(operations[0].path if operations else "/").multi(operations)

    async def access_of(self, path: str) -> AccessList:
        return await self._present(path).access_of(path)

    async def protect(self, path: str) -> Stat:
        return await self._present(path).protect(path)

    async def sync(self) -> None:
        await self._present("/").sync()

    async def close(self) -> None:
        """End the present session; there is none after it."""
        self._is_closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _present(self, path: str) -> ZooKeeperSession:
        if self._session is None:
            raise SessionLost(path)
        return self._session

    def _use(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._last_id = session.session_id
        session.add_session_listener(partial(self._on_state, session))
        if session.state is SessionState.LOST:
            self._on_state(session, SessionState.LOST)  # before a listener could be added

    def _on_state(self, session: ZooKeeperSession, state: SessionState) -> None:
        if session is not self._session:
            return
        if state is SessionState.LOST:
            self._session = None
            if not self._is_closed:
                self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(session))
        self._tell(state)

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().call_soon(listener, state)

    async def _reconnect(self, lost: ZooKeeperSession) -> None:
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
                log.warning("zookeeper.connect_failed", extra=fields(error=error, retry_s=delay_s))
            except Exception:
                log.exception("session_keeper.bug")
            else:
                self._use(session)
                if self._session is not None:
                    self._tell(SessionState.CONNECTED)
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_DELAY_S_MAX)

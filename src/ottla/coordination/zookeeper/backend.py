"""A ZooKeeper as a place of trees: makes sessions, and ends those of processes that are gone."""

from __future__ import annotations

from typing import Final

from ottla.coordination.session_keeper import SessionKeeper
from ottla.coordination.tree import Lease, Stat
from ottla.coordination.zookeeper.access import ConnectString, SessionCredentials
from ottla.coordination.zookeeper.node_access import AccessList
from ottla.coordination.zookeeper.security import UNSECURED, ZooKeeperSecurity
from ottla.coordination.zookeeper.session import ZooKeeperSession
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


class ZooKeeperKeeper(SessionKeeper[ZooKeeperSession]):
    """One tree over the sessions of a `ZooKeeperBackend`."""

    @property
    def credentials(self) -> SessionCredentials | None:
        """The key of the present session, to be kept where a restarted process finds it."""
        return None if self.session is None else self.session.credentials

    async def access_of(self, path: str) -> AccessList:
        return await self.present(path).access_of(path)

    async def protect(self, path: str) -> Stat:
        return await self.present(path).protect(path)

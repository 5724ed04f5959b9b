"""The ZooKeeper that this broker shares with others: sessions follow one another, and none outlives its process.

This module imports kazoo: a standalone broker does not import it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from ottla.coordination.tree import SessionState, Tree
from ottla.coordination.tree_retries import TreeRetries
from ottla.coordination.zookeeper.access import SessionCredentials, ZooKeeperUnreachable
from ottla.coordination.zookeeper.backend import ZooKeeperBackend, ZooKeeperKeeper
from ottla.coordination.zookeeper.protection import require_protection
from ottla.coordination.zookeeper.security import ZooKeeperSecurity, zookeeper_security
from ottla.model.broker_settings import (
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_CONNECTION_TIMEOUT_MS,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
)
from ottla.model.errors import ConfigError
from ottla.model.security_settings import AUTHORIZER_CLASS_NAME
from ottla.model.settings import BrokerSettings
from ottla.model.zookeeper_settings import ZOOKEEPER_UNPROTECTED
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.mutex import Mutex

log = logging.getLogger(__name__)

T = TypeVar("T")
Check = Callable[[ZooKeeperKeeper], Awaitable[None]]

SESSION_FILE: Final = "zookeeper-session"
# Of a start that waits for ZooKeeper.
REPORT_INTERVAL_MS: Final = 60_000
RETRY_DELAY_S: Final = 0.5


def zookeeper_backend(settings: BrokerSettings, clock: Clock) -> ZooKeeperBackend:
    """The ZooKeeper that the settings name.  Raises `ConfigError`."""
    connect = settings[ZOOKEEPER_CONNECT]
    assert connect is not None
    return ZooKeeperBackend(
        connect,
        session_timeout_ms=settings[ZOOKEEPER_SESSION_TIMEOUT_MS],
        connection_timeout_ms=settings[ZOOKEEPER_CONNECTION_TIMEOUT_MS],
        security=zookeeper_security(settings),
        clock=clock,
    )


def protection_check(settings: BrokerSettings, security: ZooKeeperSecurity, retries: TreeRetries) -> Check | None:
    """What a broker with an authorizer demands of the tree; None where nothing is.  Raises `ConfigError`."""
    if not settings[AUTHORIZER_CLASS_NAME] or settings[ZOOKEEPER_UNPROTECTED]:
        return None
    if security.digest is None or not security.sets_acl:
        missing = "zookeeper.digest is not set" if security.digest is None else "zookeeper.set.acl is false"
        raise ConfigError(
            f"there is an authorizer, and any client of ZooKeeper could change the users and the ACLs: {missing}",
            hint="set zookeeper.digest.file on all brokers (docs/security.md), or accept it with "
            f"{ZOOKEEPER_UNPROTECTED.name}=true",
        )

    async def check(keeper: ZooKeeperKeeper) -> None:
        await retries.until_done(partial(require_protection, keeper))

    return check


class SharedTreeBackend:
    """`TreeBackend` of a broker of a cluster.  Its data directory must be locked: that ends its former process.

    `waits`: for a ZooKeeper that does not answer, as long as it takes.  `check` looks at the tree before anything is
    written there; it may be called again.
    """

    def __init__(
        self,
        backend: ZooKeeperBackend,
        disk: Disk,
        data_dir: str,
        clock: Clock,
        *,
        waits: bool,
        check: Check | None = None,
    ) -> None:
        self._backend = backend
        self._file = SessionFile(disk, data_dir)
        self._writing = Mutex()
        self._remembering: asyncio.Task[None] | None = None
        self._clock = clock
        self._waits = waits
        self._check = check

    async def connect(self) -> Tree:
        """End the session of the former process, if it has one, and begin sessions of this one."""
        former = self._file.read()
        if former is not None:
            log.info("session.former_ended", extra=fields(session_id=f"{former.session_id:#x}"))
            await self._reached(partial(self._backend.end_session, former))
        keeper = await self._reached(partial(ZooKeeperKeeper.open, self._backend))
        if self._check is not None:
            try:
                await self._check(keeper)
            except BaseException:
                await keeper.close()
                raise
        await self._remember(keeper)

        def remember_next(state: SessionState) -> None:
            if state is SessionState.CONNECTED:
                self._remembering = asyncio.get_running_loop().create_task(self._remember(keeper))

        keeper.add_session_listener(remember_next)
        return keeper

    async def close(self) -> None:
        """The last session was closed with its tree, so there is none to end.  One that was not reached times out."""
        if self._remembering is not None:
            await self._remembering
        self._file.remove()

    async def _remember(self, keeper: ZooKeeperKeeper) -> None:
        # One at a time, and the one that is present then.
        async with self._writing:
            credentials = keeper.credentials
            if credentials is not None:
                await LoopOffload()(partial(self._file.write, credentials))

    async def _reached(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of `attempt`, made until a server answers.  Each attempt lasts a session time-out."""
        reported_ms: int | None = None
        while True:
            try:
                return await attempt()
            except ZooKeeperUnreachable as error:
                if not self._waits:
                    raise
                now_ms = self._clock.monotonic_ms()
                if reported_ms is None or now_ms - reported_ms >= REPORT_INTERVAL_MS:
                    reported_ms = now_ms
                    log.warning("zookeeper.awaited", extra=fields(problem=str(error), hint=error.hint))
            await asyncio.sleep(RETRY_DELAY_S)


class SessionFile:
    """The key of this broker's session with ZooKeeper, kept in its data directory.

    A broker that was killed still has a session, and is live to the others until that times out.  Its next process ends
    it at once: the directory's lock proves that the former process is gone.  Only the owner can read the file, since a
    process that has the key can act as the session.  Its loss costs a restart the wait for the former session's end.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{SESSION_FILE}"

    def read(self) -> SessionCredentials | None:
        """The key that was written last; None where there is none that can be read."""
        try:
            if not self._disk.exists(self._path):
                return None
            content = json.loads(read_file(self._disk, self._path))
            return SessionCredentials(int(content["session_id"]), bytes.fromhex(content["password"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("session_file.unreadable", extra=fields(path=self._path, error=str(error)))
            return None

    def write(self, credentials: SessionCredentials) -> None:
        """Replace the key.  A failure is reported only."""
        content = {"session_id": credentials.session_id, "password": credentials.password.hex()}
        try:
            # Files that the broker makes are for its user only.
            replace_file(self._disk, self._path, json.dumps(content).encode())
        except OSError as error:
            log.warning("session_file.not_written", extra=fields(path=self._path, error=str(error)))

    def remove(self) -> None:
        """The session was ended."""
        with contextlib.suppress(OSError):
            if self._disk.exists(self._path):
                self._disk.remove(self._path)

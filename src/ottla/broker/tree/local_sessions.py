"""The tree that another process of this machine holds: this broker's sessions with it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from ottla.coordination.local.backend import LocalBackend
from ottla.coordination.local.session import LocalSession, TreeUnreachable
from ottla.coordination.session_keeper import SessionKeeper
from ottla.coordination.tree import Tree
from ottla.model.broker_settings import TREE_SOCKET, ZOOKEEPER_CONNECTION_TIMEOUT_MS, ZOOKEEPER_SESSION_TIMEOUT_MS
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.runtime.clock import Clock

log = logging.getLogger(__name__)

RETRY_DELAY_S: Final = 0.02
# Of a start that waits for the holder.  A cluster starts both at the same time, which is no news.
REPORT_AFTER_MS: Final = 1_000
REPORT_INTERVAL_MS: Final = 60_000


class LocalTreeBackend:
    """`TreeBackend` of a broker of one machine's cluster.  The former process's session ended with its connection."""

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        socket = settings[TREE_SOCKET]
        assert socket is not None
        self._sessions: Final = LocalBackend(
            Path(socket), session_timeout_ms=settings[ZOOKEEPER_SESSION_TIMEOUT_MS], clock=clock
        )
        self._patience_ms: Final = settings[ZOOKEEPER_CONNECTION_TIMEOUT_MS]
        self._clock: Final = clock

    async def connect(self) -> Tree:
        """Waits for the holder: it may start after this broker.  Raises `TreeUnreachable` after the patience."""
        started_ms = self._clock.monotonic_ms()
        report_ms = started_ms + REPORT_AFTER_MS
        while True:
            keeper: SessionKeeper[LocalSession]
            try:
                keeper = await SessionKeeper.open(self._sessions)
            except TreeUnreachable as error:
                now_ms = self._clock.monotonic_ms()
                if self._patience_ms is not None and now_ms - started_ms >= self._patience_ms:
                    raise
                if now_ms >= report_ms:
                    report_ms = now_ms + REPORT_INTERVAL_MS
                    log.warning("tree.awaited", extra=fields(problem=str(error), hint=error.hint))
            else:
                return keeper
            await asyncio.sleep(RETRY_DELAY_S)

    async def close(self) -> None:
        """Each session was closed with its tree."""

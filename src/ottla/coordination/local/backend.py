"""Sessions with the tree that another process of this machine holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.coordination.local.session import LocalSession
from ottla.coordination.tree import Lease
from ottla.runtime.clock import Clock, SystemClock

# Processes of one machine answer at once; what takes seconds is a pause, and a shorter timeout would end sessions of
# brokers that a busy machine did not schedule.
SESSION_TIMEOUT_MS: Final = 6_000


class LocalBackend:
    """`path` is the socket of a `TreeServer`, which grants `session_timeout_ms` within its bounds."""

    def __init__(self, path: Path, *, session_timeout_ms: int = SESSION_TIMEOUT_MS, clock: Clock | None = None) -> None:
        self._path: Final = path
        self._session_timeout_ms: Final = session_timeout_ms
        self._clock: Final = clock or SystemClock()

    async def connect(self, *, lease: Lease | None = None) -> LocalSession:
        """Start a session; its first read sees everything that was committed before.

        `lease` is the object that it extends, for a holder that outlives the session.  Raises `TreeUnreachable`,
        `SocketPathTooLong`.
        """
        return await LocalSession.open(self._path, self._session_timeout_ms, lease=lease, clock=self._clock)

"""Sessions with the tree that another process of this machine holds."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.coordination.local.session import LocalSession
from ottla.coordination.tree import Lease
from ottla.runtime.clock import Clock, SystemClock


class LocalBackend:
    """`path` is the socket of a `TreeServer`."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self._path: Final = path
        self._clock: Final = clock or SystemClock()

    async def connect(self, *, lease: Lease | None = None) -> LocalSession:
        """Start a session; its first read sees everything that was committed before.

        `lease` is the object that it extends, for a holder that outlives the session.  Raises `TreeUnreachable`,
        `SocketPathTooLong`.
        """
        return await LocalSession.open(self._path, lease=lease, clock=self._clock)

"""The connections that became ready in this turn: fetches that read again, then connections that send.

Each reads or sends once, however many partitions moved for it and however many answers it got.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ottla.broker.net.connection import Connection


class Woken(Protocol):
    """A waiting fetch of which a partition moved."""

    def read_again(self) -> None: ...


class ReadyConnections:
    """Two sets in order of arrival, served at the end of the loop's turn or by `send_all`, if that is first."""

    __slots__ = ("_connections", "_is_scheduled", "_loop", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connections: dict[Connection, None] = {}
        self._woken: dict[Woken, None] = {}
        self._is_scheduled = False

    def add(self, connection: Connection) -> None:
        self._connections[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._on_turn_end)

    def wake(self, waiting: Woken) -> None:
        """Let it read again before the connections send."""
        self._woken[waiting] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._on_turn_end)

    def send_all(self) -> None:
        """Each reads and sends once; what becomes ready meanwhile is served as well."""
        while self._connections or self._woken:
            woken, self._woken = self._woken, {}
            for waiting in woken:
                waiting.read_again()
            connections, self._connections = self._connections, {}
            for connection in connections:
                connection.send_ready()

    def _on_turn_end(self) -> None:
        self._is_scheduled = False
        self.send_all()

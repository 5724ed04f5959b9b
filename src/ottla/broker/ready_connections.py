"""Connections whose answers became complete in this turn: each sends once, however many answers it got."""

from __future__ import annotations

import asyncio

from ottla.broker.connection import Connection


class ReadyConnections:
    """A set in order of arrival, sent at the end of the loop's turn or by `send_all`, whichever is first."""

    __slots__ = ("_connections", "_is_scheduled", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._connections: dict[Connection, None] = {}
        self._is_scheduled = False

    def add(self, connection: Connection) -> None:
        self._connections[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._on_turn_end)

    def send_all(self) -> None:
        """Send for each connection once; what becomes ready meanwhile is sent as well."""
        while self._connections:
            connections, self._connections = self._connections, {}
            for connection in connections:
                connection.send_ready()

    def _on_turn_end(self) -> None:
        self._is_scheduled = False
        self.send_all()

"""Accepts the connections of a server for HTTP with TLS: each is given to its protocol after the handshake.

A handshake uses the certificate of the time at which it starts, so a replaced certificate needs no new socket.  The
pending handshakes are bounded, for each address and in all: above a bound the oldest one is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from ottla.broker.net.listener import PendingLimits, PendingLogins
from ottla.broker.security.tls_server import TlsServer
from ottla.model.errors import WireError
from ottla.model.listener import without_mapping
from ottla.observe.events import fields, frequent

log = logging.getLogger(__name__)

HANDSHAKES_MAX: Final = 128
HANDSHAKES_OF_ADDRESS_MAX: Final = 64
# No descriptor is left: others may close some.
_PAUSE_S: Final = 0.1
_BACKLOG: Final = 128
_ACCEPTS_PER_TURN: Final = 16


class TlsAcceptor:
    """`connected` returns the protocol of a connection.  `close` and `wait_closed` are those of an `asyncio.Server`."""

    def __init__(
        self,
        listening: socket.socket,
        tls: TlsServer,
        connected: Callable[[], asyncio.Protocol],
        handshake_timeout_s: float,
    ) -> None:
        self.sockets: Final = (listening,)
        self._listening: Final = listening
        self._tls: Final = tls
        self._connected: Final = connected
        self._handshake_timeout_s: Final = handshake_timeout_s
        self._handshakes: Final = PendingLogins[asyncio.Task[None]](
            PendingLimits(HANDSHAKES_MAX, HANDSHAKES_OF_ADDRESS_MAX)
        )
        self._loop: Final = asyncio.get_running_loop()
        self._is_open = False

    def start(self) -> None:
        self._listening.setblocking(False)
        self._listening.listen(_BACKLOG)
        self._is_open = True
        self._read()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._listening.fileno())
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _read(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._listening.fileno(), self._on_acceptable)

    def _on_acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                peer, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connection.not_accepted", extra=frequent(error=str(error)))
                self._loop.remove_reader(self._listening.fileno())
                self._loop.call_later(_PAUSE_S, self._read)
                return
            peer.setblocking(False)
            host = without_mapping(address[0])
            task = self._loop.create_task(self._shake_hands(peer, host))
            # The loop's own time-out ends a handshake, so none is swept.
            oldest = self._handshakes.add(task, host, sweep=0)
            if oldest is not None:
                oldest.cancel()
                self._handshakes.remove(oldest)
            task.add_done_callback(self._handshakes.remove)

    async def _shake_hands(self, peer: socket.socket, host: str) -> None:
        """On failure the loop closes the socket."""
        try:
            await self._loop.connect_accepted_socket(
                self._connected, peer, ssl=self._tls.context, ssl_handshake_timeout=self._handshake_timeout_s
            )
        except (OSError, TimeoutError) as error:
            log.debug("tls.handshake_failed", extra=fields(peer=host, listener=self._tls.listener, error=str(error)))


def certificate_principal(tls: TlsServer, transport: asyncio.BaseTransport) -> str | None:
    """The principal of the client's certificate, None without one.  Raises `WireError` where no rule maps its name."""
    connection = transport.get_extra_info("ssl_object")
    if connection is None:
        raise WireError("the connection ended with its handshake")
    certificate = connection.getpeercert(binary_form=True)
    return tls.principal_of(certificate) if certificate else None

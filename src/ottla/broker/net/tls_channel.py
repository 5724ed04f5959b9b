"""A TLS connection of a client, or to another broker, with the faces of a socket and of a loop that connections use.

OpenSSL reads and writes the socket itself (a socket BIO), so no byte waits in a buffer beside: what the socket does
not accept stays with the caller, which offers it again.  A file cannot be sent by `sendfile`: its bytes are read in
slices, encrypted and sent, and a slice that was not accepted is read again, so that a stalled peer holds no memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import ssl
import termios
from collections.abc import Callable
from typing import Final

from ottla.broker.net.limits import TLS_SLICE_BYTES
from ottla.broker.net.socket_loop import SocketLoop

_NO_BYTES: Final = bytes(4)


class TlsChannel:
    """Owns the socket from the handshake on.  It is passed to a connection when the handshake is complete."""

    __slots__ = ("_is_reading", "_loop", "_on_readable", "_tls")

    def __init__(
        self, peer: socket.socket, context: ssl.SSLContext, loop: SocketLoop, *, server_name: str | None = None
    ) -> None:
        """`server_name`: of the server to which `peer` is connected; None: this is the server.

        Raises `OSError` when the peer has disconnected; the socket is then closed by the caller.
        """
        self._tls = context.wrap_socket(
            peer, server_side=server_name is None, do_handshake_on_connect=False, server_hostname=server_name
        )
        self._loop = loop
        self._on_readable: Callable[[], object] | None = None
        self._is_reading = False

    def handshake(self) -> None:
        """Continue the handshake.  Raises `ssl.SSLWantReadError` or `ssl.SSLWantWriteError` until it is complete, and
        `OSError` when it failed."""
        self._tls.do_handshake()

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's certificate in DER; verified, or it would not have been accepted."""
        return self._tls.getpeercert(binary_form=True)

    # The face of a socket.

    def fileno(self) -> int:
        return self._tls.fileno()

    def recv_into(self, view: memoryview) -> int:
        """Receive what has arrived, up to the length of `view`; 0 is the peer's end.

        Clients write a record for each request at least, so that pipelined requests are many records of a turn.
        """
        tls, received, size = self._tls, 0, len(view)
        try:
            while received < size:
                count = tls.recv_into(view[received:] if received else view)
                if not count:
                    break
                received += count
                if not tls.pending() and not self._has_unread():
                    # A read of the socket that finds nothing costs 3 us for its exception, the question 0.3.
                    return received
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not received:
                raise BlockingIOError from None
            return received
        if received:
            # More is decrypted already, or the peer's end was read: the socket does not become readable for it.
            self._loop.call_soon(self._read_rest)
        return received

    def _has_unread(self) -> bool:
        """Whether the socket holds bytes that OpenSSL has not read."""
        return fcntl.ioctl(self._tls.fileno(), termios.FIONREAD, _NO_BYTES) != _NO_BYTES

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Encrypt and send the first slice.  One that is not accepted must be offered again: OpenSSL continues it.

        `flags` of a socket do not apply: each record is sent at once.
        """
        try:
            return self._tls.send(data if len(data) <= TLS_SLICE_BYTES else memoryview(data)[:TLS_SLICE_BYTES])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def getsockname(self) -> tuple[str, int]:
        host, port = self._tls.getsockname()[:2]
        return host, port

    def getpeername(self) -> tuple[str, int]:
        host, port = self._tls.getpeername()[:2]
        return host, port

    def getsockopt(self, level: int, option: int, size_bytes: int) -> bytes:
        return self._tls.getsockopt(level, option, size_bytes)

    def close(self) -> None:
        """Close with TLS's own notice, if the socket accepts it now."""
        self._is_reading = False
        with contextlib.suppress(OSError, ValueError):
            # It always raises, because it does not wait for the peer's notice.
            self._tls.unwrap()
        self._tls.close()

    # The face of a loop: readers are also called for bytes that are decrypted already.

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object:
        self._on_readable = callback
        self._is_reading = True
        if self._tls.pending():
            self._loop.call_soon(self._read_rest)
        return self._loop.add_reader(fd, callback)

    def remove_reader(self, fd: int, /) -> bool:
        self._is_reading = False
        return self._loop.remove_reader(fd)

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> object:
        return self._loop.add_writer(fd, callback)

    def remove_writer(self, fd: int, /) -> bool:
        return self._loop.remove_writer(fd)

    def call_soon(self, callback: Callable[[], object], /) -> object:
        return self._loop.call_soon(callback)

    def _read_rest(self) -> None:
        if self._is_reading and self._on_readable is not None:
            self._on_readable()

"""Bytes to and from one broker."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.retrying import Deadline

# The minimum that POSIX guarantees for sendmsg is 16; Linux and macOS take 1,024.
PIECES_PER_SEND_MAX: Final = 512
# A longer wait for a peer is reported.
SLOW_AFTER_MS: Final = 900


class Transport(Protocol):
    """A connected byte stream.  Every error is a ClientError; after one, the stream is unusable."""

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        """Send all pieces, in order."""
        ...

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        """Wait for bytes; returns their count (at least one).  The end of the stream raises ConnectionLost."""
        ...

    def has_buffered(self) -> bool:
        """Whether bytes can be received that `fileno` would not show as readable (TLS)."""
        ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Dial(Protocol):
    """Opens a transport without encryption, which `Connection.open` adds: tests replace TCP here."""

    def __call__(self, address: Address, deadline: Deadline) -> Transport: ...


class TcpTransport:
    """Plain TCP.

    The socket never blocks: it is tried first, and waited for only if that was too early.  With a time-out of Python's
    each call would be three system calls, after each of which a thread has to wait for the interpreter.
    """

    def __init__(
        self, connected: socket.socket, peer: Address, on_slow: Callable[[str], None] = lambda reason: None
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._peer = peer
        self._on_slow = on_slow

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        left = [memoryview(piece).cast("B") for piece in pieces]
        left = [view for view in left if len(view)]
        while left:
            self._check_time(deadline, "sending a request")
            try:
                sent = self._socket.sendmsg(left[:PIECES_PER_SEND_MAX])
            except BlockingIOError:
                if not self._wait(select.POLLOUT, deadline):
                    raise CallTimedOut(f"{self._peer} does not accept a request in time") from None
                continue
            except OSError as error:
                raise self._lost(error) from error
            left = _without_first(left, sent)

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        self._check_time(deadline, "waiting for an answer")
        while True:
            try:
                received = self._socket.recv_into(buffer)
            except BlockingIOError:
                if not self._wait(select.POLLIN, deadline):
                    raise CallTimedOut(f"{self._peer} did not answer in time") from None
                continue
            except OSError as error:
                raise self._lost(error) from error
            if received == 0:
                raise ConnectionLost(f"{self._peer} closed the connection")
            return received

    def has_buffered(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _check_time(self, deadline: Deadline, what: str) -> None:
        if deadline.remaining_ms <= 0:
            raise CallTimedOut(f"no time is left for {what} ({self._peer})")

    def _wait(self, events: int, deadline: Deadline) -> bool:
        """Whether the socket is ready, or broken, before the deadline."""
        poll = select.poll()
        poll.register(self._socket, events)
        if poll.poll(min(SLOW_AFTER_MS, deadline.remaining_ms)):
            return True
        if not deadline.has_passed:
            self._on_slow(f"{self._peer} has not answered yet")
        return bool(poll.poll(deadline.remaining_ms))

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self._peer} broke: {error.strerror or error}")


def dial_tcp(
    address: Address, deadline: Deadline, on_slow: Callable[[str], None] = lambda reason: None
) -> TcpTransport:
    """Connect; tries every IP address of the host.  `on_slow` receives what takes longer than `SLOW_AFTER_MS`, then and
    later on the connection."""
    try:
        try:
            connected = _connected(address, min(SLOW_AFTER_MS, deadline.remaining_ms))
        except TimeoutError:
            if deadline.has_passed:
                raise
            on_slow(f"no connection to {address} yet: {BrokerUnreachable.hint}")
            connected = _connected(address, deadline.remaining_ms)
    except OSError as error:
        raise BrokerUnreachable(f"cannot connect to {address}: {error.strerror or error}") from error
    # A request is one send; Nagle's algorithm would only delay it.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return TcpTransport(connected, address, on_slow)


def _connected(address: Address, timeout_ms: float) -> socket.socket:
    return socket.create_connection(address, timeout=max(0.001, timeout_ms / 1000))


class Readable(Protocol):
    def fileno(self) -> int: ...

    def has_buffered(self) -> bool: ...


R = TypeVar("R", bound=Readable)


class Wait(Protocol):
    """Waits until one of several streams can be read; see `wait_readable`."""

    def __call__(self, streams: Iterable[R], timeout_ms: float) -> list[R]: ...


def wait_readable(streams: Iterable[R], timeout_ms: float) -> list[R]:
    """Those that are readable or broken; empty after `timeout_ms`."""
    by_descriptor = {stream.fileno(): stream for stream in streams}
    buffered = [stream for stream in by_descriptor.values() if stream.has_buffered()]
    if buffered:
        return buffered
    poll = select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(max(0.0, timeout_ms))]


def _without_first(pieces: list[memoryview], sent: int) -> list[memoryview]:
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []

"""Bytes to and from one broker."""

from __future__ import annotations

import errno
import math
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.errors import BrokerUnreachable, CallTimedOut, ConnectionLost
from ottla.client.wire.retrying import Deadline
from ottla.runtime.clock import SystemClock

# The minimum that POSIX guarantees for sendmsg is 16; Linux and macOS take 1,024.
PIECES_PER_SEND_MAX: Final = 512
# A longer wait for a peer is reported.
SLOW_AFTER_MS: Final = 900


class Transport(Protocol):
    """A byte stream.  Every error is a ClientError; after one, the stream is unusable.

    What can be done without waiting is done also after a deadline that has passed.
    """

    def connect(self, deadline: Deadline) -> None:
        """Complete the connection that `Dial` has started.  After CallTimedOut it may be called again."""
        ...

    def connect_wait_ms(self) -> float:
        """How long `connect` has nothing to do while the stream cannot be written: until another IP address of the peer
        is due; infinite where there is none."""
        ...

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        """Send all pieces, in order.  After CallTimedOut the rest of them is kept for `finish_sending`."""
        ...

    def finish_sending(self, deadline: Deadline) -> None:
        """Send what is left.  After CallTimedOut it may be called again."""
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
    """Starts a transport without encryption, which `Connection.open` adds: tests replace TCP here.  It does not wait
    for the peer."""

    def __call__(self, address: Address) -> Transport: ...


# As getaddrinfo returns it.
_Host = tuple[int, int, int, str, tuple[Any, ...]]
_UNDER_WAY: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})
_CLOCK: Final = SystemClock()


class _Hosts:
    """The IP addresses of a name, one after the other.  Where there are several, one that is silent has a part of the
    time, which doubles with each round: the next one may be reached.  One that refuses is not tried again.
    """

    def __init__(self, hosts: Iterable[_Host]) -> None:
        self._left = deque(hosts)
        self._tries_left = len(self._left)
        self._share_ms: float = SLOW_AFTER_MS
        self._until = Deadline(_CLOCK, 0)

    def start(self) -> socket.socket:
        """A socket that connects to the next one.  Raises the last one's OSError when all have refused."""
        while True:
            family, kind, protocol, _, place = self._left[0]
            try:
                opened = socket.socket(family, kind, protocol)
            except OSError as error:
                self._drop(error)
                continue
            opened.setblocking(False)
            code = opened.connect_ex(place)
            if code in _UNDER_WAY:
                self._until = Deadline(_CLOCK, self._share_ms)
                return opened
            opened.close()
            self._drop(OSError(code, os.strerror(code)))

    def refused(self, code: int) -> socket.socket:
        """The next one.  Raises OSError when there is none."""
        self._drop(OSError(code, os.strerror(code)))
        return self.start()

    def skip(self) -> socket.socket:
        """The next one; the present one has its turn again."""
        self._left.rotate(-1)
        self._tries_left -= 1
        if not self._tries_left:
            self._tries_left = len(self._left)
            self._share_ms *= 2
        return self.start()

    def _drop(self, error: OSError) -> None:
        self._left.popleft()
        self._tries_left = max(1, self._tries_left - 1)
        if not self._left:
            raise error

    def limit(self, deadline: Deadline) -> Deadline:
        """Until when to wait for the present one."""
        return deadline.at_most(self.next_due_ms)

    @property
    def next_due_ms(self) -> float:
        """The time until the next one is due; infinite where there is none."""
        return math.inf if len(self._left) == 1 else self._until.remaining_ms


class TcpTransport:
    """Plain TCP.

    The socket never blocks: it is tried first, and waited for only if that was too early.  With a time-out of Python's
    each call would be three system calls, after each of which a thread has to wait for the interpreter.

    `hosts`: where else to connect while `stream` is not connected; None: it is connected.
    """

    def __init__(
        self,
        stream: socket.socket,
        peer: Address,
        on_slow: Callable[[str], None] = lambda reason: None,
        hosts: _Hosts | None = None,
    ) -> None:
        stream.setblocking(False)
        self._socket = stream
        self._peer = peer
        self._on_slow = on_slow
        self._hosts = hosts
        self._unsent: list[memoryview] = []
        # When a wait for the peer is reported; None: it does not keep a caller waiting.
        self._slow_at: Deadline | None = None

    @property
    def waits_to_write(self) -> bool:
        return self._hosts is not None or bool(self._unsent)

    def connect(self, deadline: Deadline) -> None:
        """Raises BrokerUnreachable when no IP address of the peer accepts a connection, CallTimedOut."""
        hosts = self._hosts
        if hosts is None:
            return
        late = f"no connection to {self._peer} yet"
        try:
            while True:
                if not self._wait(select.POLLOUT, hosts.limit(deadline), f"{late}: {BrokerUnreachable.hint}"):
                    if hosts.next_due_ms > 0:
                        raise CallTimedOut(late, hint=BrokerUnreachable.hint)
                    self._socket.close()
                    self._socket = hosts.skip()
                    continue
                code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if not code:
                    break
                self._socket.close()
                self._socket = hosts.refused(code)
            # A request is one send; Nagle's algorithm would only delay it.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise _unreachable(self._peer, error) from error
        self._hosts = None

    def connect_wait_ms(self) -> float:
        return math.inf if self._hosts is None else self._hosts.next_due_ms

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        views = [memoryview(piece).cast("B") for piece in pieces]
        self._unsent += [view for view in views if len(view)]
        self.finish_sending(deadline)

    def finish_sending(self, deadline: Deadline) -> None:
        while self._unsent:
            try:
                sent = self._socket.sendmsg(self._unsent[:PIECES_PER_SEND_MAX])
            except BlockingIOError:
                if not self._wait(select.POLLOUT, deadline, f"{self._peer} has not answered yet"):
                    raise CallTimedOut(f"{self._peer} does not accept a request in time") from None
                continue
            except OSError as error:
                raise self._lost(error) from error
            self._unsent = _without_first(self._unsent, sent)

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        while True:
            try:
                received = self._socket.recv_into(buffer)
            except BlockingIOError:
                if not self._wait(select.POLLIN, deadline, f"{self._peer} has not answered yet"):
                    raise CallTimedOut(f"{self._peer} did not answer in time") from None
                continue
            except OSError as error:
                raise self._lost(error) from error
            if received == 0:
                raise ConnectionLost(f"{self._peer} closed the connection")
            self._slow_at = None
            return received

    def has_buffered(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._unsent = []
        self._socket.close()

    def _wait(self, events: int, deadline: Deadline, slow: str) -> bool:
        """Whether the socket is ready, or broken, before the deadline.  A wait that lasts is reported as `slow`, one of
        several calls, too."""
        if self._slow_at is None:
            self._slow_at = Deadline(_CLOCK, SLOW_AFTER_MS)
        poll = select.poll()
        poll.register(self._socket, events)
        if poll.poll(min(self._slow_at.remaining_ms, deadline.remaining_ms)):
            self._slow_at = None
            return True
        if self._slow_at.has_passed:
            self._on_slow(slow)
            self._slow_at = Deadline(_CLOCK, math.inf)
        return not deadline.has_passed and bool(poll.poll(deadline.remaining_ms))

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self._peer} broke: {error.strerror or error}")


def dial_tcp(address: Address, on_slow: Callable[[str], None] = lambda reason: None) -> TcpTransport:
    """Start to connect, to every IP address of the host until one accepts.  Only the system's look-up of a name is
    waited for.  `on_slow` receives what takes longer than `SLOW_AFTER_MS`, then and later on the connection.

    Raises BrokerUnreachable.
    """
    try:
        hosts = _Hosts(socket.getaddrinfo(*address, type=socket.SOCK_STREAM))
        return TcpTransport(hosts.start(), address, on_slow, hosts)
    except OSError as error:
        raise _unreachable(address, error) from error


def _unreachable(address: Address, error: OSError) -> BrokerUnreachable:
    return BrokerUnreachable(f"cannot connect to {address}: {error.strerror or error}")


class Readable(Protocol):
    @property
    def waits_to_write(self) -> bool:
        """Whether it is waited for until it can be written, too: it is not connected yet, or has not sent all."""
        ...

    def fileno(self) -> int: ...

    def has_buffered(self) -> bool: ...


R = TypeVar("R", bound=Readable)


class Wait(Protocol):
    """Waits until one of several streams can be read; see `wait_readable`."""

    def __call__(self, streams: Iterable[R], timeout_ms: float) -> list[R]: ...


def wait_readable(streams: Iterable[R], timeout_ms: float) -> list[R]:
    """Those that are readable, broken, or can be written and wait for that; empty after `timeout_ms`.

    One that has buffered bytes keeps no other from its turn.
    """
    by_descriptor = {stream.fileno(): stream for stream in streams}
    ready = {descriptor for descriptor, stream in by_descriptor.items() if stream.has_buffered()}
    poll = select.poll()
    for descriptor, stream in by_descriptor.items():
        poll.register(descriptor, select.POLLIN | (select.POLLOUT if stream.waits_to_write else 0))
    ready.update(descriptor for descriptor, _ in poll.poll(0 if ready else max(0.0, timeout_ms)))
    return [stream for descriptor, stream in by_descriptor.items() if descriptor in ready]


def _without_first(pieces: list[memoryview], sent: int) -> list[memoryview]:
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []

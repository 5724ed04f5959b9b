"""An event loop that the test turns by hand: it keeps callbacks, and the test runs them."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable


class Handle:
    """A scheduled callback."""

    def __init__(self, when_s: float, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.when_s = when_s
        self.callback = callback
        self.args = args
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class TurnedLoop:
    """The few methods of an asyncio loop that the broker's shell uses."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.writers: dict[int, Callable[[], object]] = {}
        self.now_s = 0.0
        self._soon: deque[Handle] = deque()
        self._timers: list[Handle] = []

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> bool:
        return self.readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:
        self.writers[fd] = callback

    def remove_writer(self, fd: int) -> bool:
        return self.writers.pop(fd, None) is not None

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        handle = Handle(self.now_s, callback, args)
        self._soon.append(handle)
        return handle

    def call_at(self, when_s: float, callback: Callable[..., object], *args: object) -> Handle:
        handle = Handle(when_s, callback, args)
        self._timers.append(handle)
        return handle

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Handle:
        return self.call_at(self.now_s + delay_s, callback, *args)

    @property
    def timers_count(self) -> int:
        """Timers that are set."""
        return sum(not timer.is_cancelled for timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Let time pass and run what is due."""
        self.now_s += seconds
        due = sorted((t for t in self._timers if t.when_s <= self.now_s), key=lambda t: t.when_s)
        self._timers = [t for t in self._timers if t.when_s > self.now_s]
        for timer in due:
            if not timer.is_cancelled:
                timer.callback(*timer.args)
        self.turn()

    def turn(self) -> None:
        """Run callbacks and ready sockets until nothing is left to do."""
        for _ in range(10_000):
            while self._soon:
                handle = self._soon.popleft()
                if not handle.is_cancelled:
                    handle.callback(*handle.args)
            readable, writable, _ = select.select(list(self.readers), list(self.writers), [], 0)
            if not readable and not writable:
                return
            for fd in readable:
                if fd in self.readers:
                    self.readers[fd]()
            for fd in writable:
                if fd in self.writers:
                    self.writers[fd]()
        raise AssertionError("the loop never comes to rest")


class TurnedClock(TurnedLoop):
    """A turned loop whose time is the clock's."""

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(self.now_s * 1000)

    def boottime_ms(self) -> int:
        return self.monotonic_ms()


class LoopbackEnd(socket.socket):
    """An end of a local socket pair that has an address, as an end of a TCP connection has.

    What one end of such a pair sends, the other has when `send` returns.  Loopback TCP delivers a moment later, so that
    a loop which looks once may find nothing.
    """

    address = ("127.0.0.1", 9092)

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def getpeername(self) -> tuple[str, int]:
        return self.address


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection, both non-blocking: (client, server)."""
    client, server = (LoopbackEnd(fileno=end.detach()) for end in socket.socketpair())
    client.setblocking(False)
    server.setblocking(False)
    return client, server

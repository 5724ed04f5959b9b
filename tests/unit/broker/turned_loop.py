"""An event loop that the test turns by hand: it keeps callbacks and runs them when told."""

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


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection on loopback, both non-blocking: (client, server)."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    for end in (client, server):
        end.setblocking(False)
        # As the listener does: else a small answer waits up to 40 ms for the acknowledgement of the one before it.
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server

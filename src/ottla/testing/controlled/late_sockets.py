"""Sockets of clients that are read later than bytes arrive, when a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.broker.net.socket_loop import SocketLoop

Callback = Callable[[], object]


class Timer(Protocol):
    def cancel(self) -> None: ...


class TimedLoop(SocketLoop, Protocol):
    """Any asyncio loop is one."""

    def call_later(self, delay: float, callback: Callback, /) -> Timer: ...


class LateSockets:
    """A `SocketLoop` that is as good as `loop` while nothing is late.

    A request that arrives where none waits is read `late_ms` after it; those that arrive in between are read with it.
    """

    def __init__(self, loop: TimedLoop, late_ms: int = 0) -> None:
        self._loop = loop
        self._late_ms = late_ms
        self._readers: dict[int, Callback] = {}
        self._waiting: dict[int, Timer] = {}

    def set_late_ms(self, late_ms: int) -> None:
        """From now on, also for the connections that there are; what waits already is read when it was due."""
        self._late_ms = late_ms
        for fd in self._readers.keys() - self._waiting.keys():
            self._watch(fd)

    def add_reader(self, fd: int, callback: Callback, /) -> None:
        self._readers[fd] = callback
        if fd not in self._waiting:
            self._watch(fd)

    def remove_reader(self, fd: int, /) -> bool:
        waiting = self._waiting.pop(fd, None)
        if waiting is None:
            self._loop.remove_reader(fd)
        else:
            waiting.cancel()
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: int, callback: Callback, /) -> None:
        self._loop.add_writer(fd, callback)

    def remove_writer(self, fd: int, /) -> bool:
        return self._loop.remove_writer(fd)

    def call_soon(self, callback: Callback, /) -> None:
        self._loop.call_soon(callback)

    def _watch(self, fd: int) -> None:
        self._loop.add_reader(fd, partial(self._on_readable, fd) if self._late_ms else self._readers[fd])

    def _on_readable(self, fd: int) -> None:
        # It stays readable, and would be reported again and again.
        self._loop.remove_reader(fd)
        self._waiting[fd] = self._loop.call_later(self._late_ms / 1000, partial(self._read, fd))

    def _read(self, fd: int) -> None:
        del self._waiting[fd]
        self._watch(fd)
        # Last: it may close the connection, or read no more for now.
        self._readers[fd]()

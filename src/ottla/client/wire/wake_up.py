"""Wakes a thread that waits on sockets: a pair of them, one end of which is among those that it waits for."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from ottla.client.wire.transport import Readable, wait_readable


class WakeUp:
    """`ring` from any thread ends the wait of the thread that polls this object; that thread then calls `clear`.

    It is a `transport.Readable`.  Rings before a `clear` count once.
    """

    def __init__(self) -> None:
        self._read_end, self._write_end = socket.socketpair()
        self._read_end.setblocking(False)
        self._write_end.setblocking(False)
        self._is_rung = False

    def ring(self) -> None:
        if self._is_rung:
            return
        try:
            self._is_rung = True
            self._write_end.send(b"\x00")
        except OSError:  # it is full, so it can be read; or closed, so no thread waits
            pass
        except BaseException:  # Ctrl-C between the two: later rings would count as this one, which wakes no thread
            self._is_rung = False
            raise

    def clear(self) -> None:
        """What rings from now on is a new reason to wake; so look for work after this."""
        with suppress(OSError):
            self._read_end.recv(64)
        self._is_rung = False

    @property
    def waits_to_write(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._read_end.fileno()

    def has_buffered(self) -> bool:
        return False

    def close(self) -> None:
        self._read_end.close()
        self._write_end.close()


R = TypeVar("R", bound=Readable)


class WokenWaits:
    """`wait` and `sleep` are those of a `Cluster`: they end early when `wake_up` rings, also when it rang before."""

    def __init__(self, wake_up: WakeUp) -> None:
        self._wake_up = wake_up

    def wait(self, streams: Iterable[R], timeout_ms: float) -> list[R]:
        """As `transport.wait_readable`."""
        waited = list(streams)
        every: list[Readable] = [*waited, self._wake_up]
        ready = {stream.fileno() for stream in wait_readable(every, timeout_ms)}
        if self._wake_up.fileno() in ready:
            self._wake_up.clear()
        return [stream for stream in waited if stream.fileno() in ready]

    def sleep(self, seconds: float) -> None:
        self.wait((), seconds * 1000)

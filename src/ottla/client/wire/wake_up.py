"""Wakes a thread that waits on sockets: a pair of them, one end of which is among those that it waits for."""

from __future__ import annotations

import socket
from contextlib import suppress


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

    def fileno(self) -> int:
        return self._read_end.fileno()

    def has_buffered(self) -> bool:
        return False

    def close(self) -> None:
        self._read_end.close()
        self._write_end.close()

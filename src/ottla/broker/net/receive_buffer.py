"""The bytes of a connection that are not routed yet, in one buffer that grows as they arrive.

`data[start:end]` is unread.  `view` is a view of `data`; both are replaced when the buffer is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from ottla.broker.net.limits import (
    FIRST_BUFFER_BYTES,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    SMALL_FRAME_BYTES_MAX,
)
from ottla.broker.net.receive_budget import ReceiveBudget
from ottla.protocol.primitives import RequestBytes

_LENGTH: Final = struct.Struct(">i")
LENGTH_BYTES: Final = 4

# A large frame is read up to its end only, so that the next one starts at the start of the buffer without a move.
_LOOK_AHEAD_BYTES: Final = 256 * 1024

assert RECEIVE_BUFFER_BYTES <= _LOOK_AHEAD_BYTES


class ReceiveBuffer:
    """Starts with `FIRST_BUFFER_BYTES`, and has `RECEIVE_BUFFER_BYTES` from the first full one on, until it is idle.

    Growing beyond that takes bytes of a budget that all connections share.
    """

    __slots__ = ("_budget", "_grown_bytes", "_when_room", "data", "end", "start", "view")

    def __init__(self, budget: ReceiveBudget, when_room: Callable[[], None]) -> None:
        self._budget = budget
        self._when_room = when_room
        self._grown_bytes = 0
        self.data: RequestBytes = bytearray(FIRST_BUFFER_BYTES)
        self.view = memoryview(self.data)
        self.start = 0
        self.end = 0

    @property
    def is_empty(self) -> bool:
        return self.start == self.end

    @property
    def is_grown(self) -> bool:
        """Whether it holds bytes of the budget."""
        return self._grown_bytes > 0

    @property
    def is_full(self) -> bool:
        return self.end == len(self.data)

    def window(self) -> memoryview:
        """Where the next bytes are received: up to a large frame's end, else to the end of the read-ahead."""
        if not self.end and not self._grown_bytes:
            # Nearly always: all that came before is routed.
            return self.view
        start, end, size = self.start, self.end, len(self.data)
        limit = end + _LOOK_AHEAD_BYTES
        if end - start >= LENGTH_BYTES:
            frame_end = start + LENGTH_BYTES + _LENGTH.unpack_from(self.data, start)[0]
            if frame_end > limit:
                limit = frame_end
        return self.view[end : limit if limit < size else size]

    def make_room(self) -> bool:
        """Make room in the window for the rest of the first frame; False: wait for `when_room`."""
        start, end, size = self.start, self.end, len(self.data)
        if start == end:
            self.start = self.end = 0
            if end == size == FIRST_BUFFER_BYTES:
                # More requests at a time than it holds.
                self._replace(RECEIVE_BUFFER_BYTES)
            elif self._grown_bytes and (size > RECEIVE_BUFFER_KEPT_BYTES or self._budget.is_contended):
                self._replace(RECEIVE_BUFFER_BYTES)
            return True
        frame_bytes = LENGTH_BYTES
        if end - start >= LENGTH_BYTES:
            frame_bytes += _LENGTH.unpack_from(self.data, start)[0]
        if end < size and start + frame_bytes <= size:
            return True
        if end == size < RECEIVE_BUFFER_BYTES:
            self._replace(RECEIVE_BUFFER_BYTES)
            return True
        if end - start == size:
            # Full of one frame: double, so memory follows the bytes that came, not the length claimed.
            is_small = frame_bytes <= SMALL_FRAME_BYTES_MAX
            return self._grow(min(max(frame_bytes, RECEIVE_BUFFER_BYTES), 2 * size), is_small=is_small)
        if start:
            self._replace(size)
        return True

    def shrink(self) -> None:
        """Return to the first size, if nothing is unread: the connection is idle."""
        if len(self.data) > FIRST_BUFFER_BYTES and self.is_empty:
            self.start = self.end = 0
            self._replace(FIRST_BUFFER_BYTES)

    def close(self) -> None:
        """Release everything.  References to the connection that remain keep none of its bytes."""
        self.data = bytearray()
        self.view = memoryview(self.data)
        self.start = self.end = 0
        grown_bytes, self._grown_bytes = self._grown_bytes, 0
        self._budget.forget(self._when_room)
        self._budget.release(grown_bytes)

    def _grow(self, target_bytes: int, *, is_small: bool) -> bool:
        grown, held = target_bytes - RECEIVE_BUFFER_BYTES, self._grown_bytes
        if not self._budget.take(grown - held, self._when_room, held_bytes=held, is_small=is_small):
            return False
        self._grown_bytes = grown
        self._replace(target_bytes)
        return True

    def _replace(self, size_bytes: int) -> None:
        """Move what is unread to the front of a buffer of this size (the same one where the size is the same)."""
        unread = self.end - self.start
        assert unread <= size_bytes
        if size_bytes == len(self.data):
            self.view[:unread] = bytes(self.view[self.start : self.end])
        else:
            data = _memory(size_bytes)
            view = memoryview(data)
            view[:unread] = self.view[self.start : self.end]
            self.data, self.view = data, view
            if size_bytes <= RECEIVE_BUFFER_BYTES:
                grown_bytes, self._grown_bytes = self._grown_bytes, 0
                self._budget.release(grown_bytes)
        self.start, self.end = 0, unread


def _memory(size_bytes: int) -> RequestBytes:
    """Zeros: beyond the first size pages of the system, which it has back when the last view of them is dropped.

    The C library keeps freed buffers of 64 KiB: 2,000 connections that had sent 40 KB each took 73 KB each when they
    were idle, with maps 8.8 KB.  A page takes memory when it is first written, so a buffer takes what arrived.
    """
    if size_bytes > FIRST_BUFFER_BYTES:
        with suppress(OSError):  # too many maps: the C library has its own
            return mmap(-1, size_bytes, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    return bytearray(size_bytes)

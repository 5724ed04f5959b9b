"""The bytes of a connection that are not routed yet, in one buffer that grows as they arrive; and the budget
of bytes that the large buffers of all connections share.

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
    RECEIVE_BUDGET_OF_SMALL,
    RECEIVE_BUFFER_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    SMALL_FRAME_BYTES_MAX,
)
from ottla.protocol.primitives import RequestBytes

_LENGTH: Final = struct.Struct(">i")
LENGTH_BYTES: Final = 4

# A large frame is read up to its end only, so that the next one starts at the start of the buffer without a move.
_LOOK_AHEAD_BYTES: Final = 256 * 1024

assert RECEIVE_BUFFER_BYTES <= _LOOK_AHEAD_BYTES


class ReceiveBudget:
    """A count of bytes.  A connection that finds no room is called back, in order, when some is released.

    Large requests leave a part of it to small ones, which so do not wait for them.  A peer that holds room and sends
    too slowly is closed by the sweep, so waiting ends.  Holders that all wait for each other would deadlock: the one
    that would be the last to wait gets its bytes, beyond the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_of_large_bytes = limit_bytes - limit_bytes // RECEIVE_BUDGET_OF_SMALL
        self._taken_bytes = 0
        # Waiting connections, in order, and the bytes that each holds meanwhile.
        self._waiting: dict[Callable[[], None], int] = {}
        self._held_by_waiting_bytes = 0

    @property
    def taken_bytes(self) -> int:
        return self._taken_bytes

    @property
    def is_contended(self) -> bool:
        """Whether a connection waits for room: idle connections should release theirs."""
        return bool(self._waiting)

    def take(
        self, size_bytes: int, when_room: Callable[[], None], *, held_bytes: int = 0, is_small: bool = False
    ) -> bool:
        """Acquire `size_bytes`; without room, False, and `when_room` is called once later to try again.

        `held_bytes` is what the caller has already and keeps while it waits; `is_small`: for a small request.
        """
        assert size_bytes >= 0
        # When no other connection will release any, the request is served, however large: else all would wait for ever.
        others_bytes = self._taken_bytes - self._held_by_waiting_bytes - held_bytes
        limit_bytes = self._limit_bytes if is_small else self._limit_of_large_bytes
        if others_bytes > 0 and self._taken_bytes + size_bytes > limit_bytes:
            self._waiting[when_room] = held_bytes
            self._held_by_waiting_bytes += held_bytes
            return False
        self._taken_bytes += size_bytes
        return True

    def forget(self, when_room: Callable[[], None]) -> None:
        """Remove a waiting connection."""
        self._held_by_waiting_bytes -= self._waiting.pop(when_room, 0)

    def release(self, size_bytes: int) -> None:
        self._taken_bytes -= size_bytes
        assert self._taken_bytes >= 0
        if size_bytes and self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._held_by_waiting_bytes = 0
            for when_room in waiting:
                when_room()


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

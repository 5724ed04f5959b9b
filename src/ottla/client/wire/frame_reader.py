"""Splits a byte stream into responses: a 4-byte length, then so many bytes."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Final

from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.errors import WireError
from ottla.model.limits import KIB, MIB
from ottla.protocol.frame import LENGTH_PREFIX

_BUFFER_BYTES: Final = 64 * KIB
# A frame larger than all before gets memory page by page, as bytes arrive: a length alone allocates nothing.  Others
# get it from the heap, which is faster.
_LAZY_FROM_BYTES: Final = 1 * MIB
# Smaller ones come from the heap, which has them ready.
_REUSED_FROM_BYTES: Final = 128 * KIB
_CORRELATION_ID_BYTES: Final = 4
# The type of a TLS record (20 to 23) and the first byte of its version, where a frame has its length.
_TLS_RECORDS: Final = frozenset({0x1403, 0x1503, 0x1603, 0x1703})

ReceiveInto = Callable[[memoryview], int]


class TlsRecordReceived(WireError):
    """The peer speaks TLS."""


class FrameReader:
    """Reads ahead into a small buffer, so that several short answers cost one system call.

    Each frame has its own memory, which lives as long as a view of it; with `memory` it is used again afterwards.
    """

    def __init__(self, response_bytes_max: int, memory: ReusedMemory | None = None) -> None:
        self._response_bytes_max = response_bytes_max
        self._memory = memory
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._largest_bytes = _LAZY_FROM_BYTES

    @property
    def has_buffered(self) -> bool:
        """Whether a part of the next frame has arrived."""
        return self._end > self._start

    def read(self, receive_into: ReceiveInto) -> memoryview:
        """The next frame without its length.  Raises WireError for an impossible length."""
        while self._end - self._start < LENGTH_PREFIX.size:
            self._fill(receive_into)
        length: int = LENGTH_PREFIX.unpack_from(self._buffer, self._start)[0]
        if not _CORRELATION_ID_BYTES <= length <= self._response_bytes_max:
            if length >> 16 in _TLS_RECORDS:
                raise TlsRecordReceived("a TLS record instead of a response")
            raise WireError(
                f"a response of {length} bytes; at most {self._response_bytes_max} are accepted",
                hint="is the peer a Kafka broker?",
            )
        self._start += LENGTH_PREFIX.size
        frame = self._frame(length)
        filled = min(length, self._end - self._start)
        frame[:filled] = self._buffer[self._start : self._start + filled]
        self._start += filled
        while filled < length:
            filled += receive_into(frame[filled:])
        self._largest_bytes = max(self._largest_bytes, length)
        return frame

    def _frame(self, length: int) -> memoryview:
        is_largest = length > self._largest_bytes
        if self._memory is not None and length >= _REUSED_FROM_BYTES:
            lent = self._memory.lend(length, may_grow=not is_largest)
            if lent is not None:
                return lent
        return memoryview(mmap.mmap(-1, length) if is_largest else bytearray(length))

    def _fill(self, receive_into: ReceiveInto) -> None:
        kept = self._end - self._start
        if self._start:
            self._buffer[:kept] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, kept
        self._end += receive_into(self._buffer[self._end :])

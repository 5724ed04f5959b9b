"""Large buffers that are used again: fresh memory costs a page fault for every 4 KiB, which is more than filling it."""

from __future__ import annotations

from threading import Lock

from ottla.model.limits import MIB


class ReusedMemory:
    """Lends buffers, and lends them again when no view of them is left; at most `kept_bytes_max` stay.

    For all threads.  A lent buffer holds the bytes of its last user.
    """

    def __init__(self, kept_bytes_max: int) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._buffers: list[bytearray] = []
        self._lock = Lock()

    @property
    def kept_bytes(self) -> int:
        return sum(map(len, self._buffers))

    def lend(self, size_bytes: int, *, may_grow: bool = True) -> memoryview | None:
        """A buffer of this size.  None where none is free and memory would have to be allocated: `may_grow` forbids it,
        or what is kept is lent out, and a new buffer would be too much."""
        with self._lock:
            free = sorted((buffer for buffer in self._buffers if _is_free(buffer)), key=len)
            for buffer in free:
                if len(buffer) >= size_bytes:
                    return memoryview(buffer)[:size_bytes]
            # The sizes of what is lent differ a little: a buffer for one serves the next.
            new_bytes = -(-size_bytes // MIB) * MIB
            room = self._kept_bytes_max - self.kept_bytes
            if not may_grow or new_bytes > room + sum(map(len, free)):
                return None
            while new_bytes > room:
                room += len(free[0])
                self._drop(free.pop(0))
            self._buffers.append(bytearray(new_bytes))
            return memoryview(self._buffers[-1])[:size_bytes]

    def _drop(self, unwanted: bytearray) -> None:
        self._buffers = [buffer for buffer in self._buffers if buffer is not unwanted]


def _is_free(buffer: bytearray) -> bool:
    """A bytearray cannot change its size while a view of it exists."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True

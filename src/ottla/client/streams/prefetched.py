"""What was fetched ahead for one stream: raw batches by partition, handed out in turns, bounded by bytes.  Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ottla.client.fetching.fetch import FetchedPartition
from ottla.client.streams.reading import Reading
from ottla.model.limits import KIB
from ottla.records.record import split_batches

# A partition gets at least this much of a fetch, however many share the stream's room: batches are about so large.
_FETCH_BYTES_MIN: Final = 16 * KIB


class _Piece:
    """Consecutive batches of one answer."""

    __slots__ = ("batches", "high_watermark", "size_bytes")

    def __init__(self, fetched: FetchedPartition) -> None:
        self.high_watermark = fetched.high_watermark
        records = fetched.records
        self.size_bytes = len(records)
        # A small part of a large answer would keep all of it in memory.
        if 2 * len(records) < len(memoryview(records.obj).cast("B")):
            records = memoryview(bytes(records))
        self.batches: Iterator[memoryview] = split_batches(records)


class Prefetched:
    """Batches that wait for their stream, and the room for more.

    At most `bytes_max` wait or are being fetched, and for each partition 16 KiB or one batch that is larger.
    """

    def __init__(self, bytes_max: int, partition_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._partition_bytes_max = partition_bytes_max
        self._pieces: dict[Reading, deque[_Piece]] = {}
        # Readings with pieces, the next one first.
        self._turns: deque[Reading] = deque()
        self._waiting_bytes = 0
        self._reserved_bytes: dict[Reading, int] = {}
        # Whether a fetch was refused room since there was some again.
        self._is_wanted = False

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def reserve(self, reading: Reading, readings_count: int) -> int:
        """Bytes that a fetch may bring; `readings_count` share the room.  0 while half of it is full."""
        if reading in self._reserved_bytes:
            return 0
        free_bytes = self._bytes_max - self._waiting_bytes - sum(self._reserved_bytes.values())
        if self._waiting_bytes > self._bytes_max // 2:
            self._is_wanted = True
            return 0
        share_bytes = max(_FETCH_BYTES_MIN, free_bytes // max(1, readings_count - len(self._reserved_bytes)))
        self._reserved_bytes[reading] = min(share_bytes, self._partition_bytes_max)
        return self._reserved_bytes[reading]

    def on_landed(self, reading: Reading, size_bytes: int) -> None:
        """A fetch has ended; so many bytes of it will be put here, or dropped."""
        self._reserved_bytes.pop(reading, None)
        self._waiting_bytes += size_bytes

    def put(self, reading: Reading, fetched: FetchedPartition) -> None:
        pieces = self._pieces.setdefault(reading, deque())
        if not pieces:
            self._turns.append(reading)
        pieces.append(_Piece(fetched))

    def has(self, reading: Reading) -> bool:
        """Whether anything of it waits: the last of a piece may be empty, which shows when its turn comes."""
        return bool(self._pieces.get(reading))

    def forget_bytes(self, size_bytes: int) -> None:
        """What had landed was not put here."""
        self._waiting_bytes -= size_bytes

    def drop(self, reading: Reading) -> None:
        """Forget what waits of this reading."""
        pieces = self._pieces.pop(reading, None)
        if pieces is not None:
            self._waiting_bytes -= sum(piece.size_bytes for piece in pieces)
            if reading in self._turns:
                self._turns.remove(reading)

    def next_batch(self) -> tuple[Reading, memoryview, int] | None:
        """The next batch of the reading whose turn it is, and the high watermark with which it came."""
        while self._turns:
            reading = self._turns[0]
            pieces = self._pieces[reading]
            batch = next(pieces[0].batches, None)
            if batch is not None:
                self._turns.rotate(-1)
                return reading, batch, pieces[0].high_watermark
            self._waiting_bytes -= pieces.popleft().size_bytes
            if not pieces:
                self._turns.popleft()
        return None

    def take_wanted(self) -> bool:
        """Whether a fetch that was refused may go now; said once."""
        if self._is_wanted and self._waiting_bytes <= self._bytes_max // 2:
            self._is_wanted = False
            return True
        return False

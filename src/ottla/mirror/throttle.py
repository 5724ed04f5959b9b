"""How much may be read now, so that the average stays below a rate.  See `client.fetching.fetch_machine.FetchRoom`."""

from __future__ import annotations

from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.runtime.clock import Clock

# A fetch is worth its request from so many bytes on.
ROOM_BYTES_MIN: Final = 64 * KIB
ROOM_BYTES_MAX: Final = 4 * MIB


class Throttle:
    """A bucket that fills with `rate_bytes_s` and holds what comes in a second; None: no limit.

    One batch may be larger than the room: then the bucket is in debt, and the next fetch waits for longer.
    """

    def __init__(self, rate_bytes_s: int | None, clock: Clock) -> None:
        self._rate_bytes_s = rate_bytes_s
        self._clock = clock
        self._holds_bytes = max(rate_bytes_s or 0, ROOM_BYTES_MIN)
        self._left_bytes = float(self._holds_bytes)
        self._filled_ms = clock.monotonic_ms()
        self._reserved: dict[TopicPartition, int] = {}

    def reserve(self, partition: TopicPartition) -> int:
        if self._rate_bytes_s is None:
            return ROOM_BYTES_MAX
        self._fill(self._rate_bytes_s)
        if self._left_bytes < min(ROOM_BYTES_MIN, self._holds_bytes):
            return 0
        room = min(ROOM_BYTES_MAX, int(self._left_bytes))
        self._reserved[partition] = self._reserved.get(partition, 0) + room
        self._left_bytes -= room
        return room

    def on_landed(self, partition: TopicPartition, size_bytes: int) -> None:
        if self._rate_bytes_s is not None:
            self._left_bytes += self._reserved.pop(partition, 0) - size_bytes

    def _fill(self, rate_bytes_s: int) -> None:
        now_ms = self._clock.monotonic_ms()
        added = (now_ms - self._filled_ms) * rate_bytes_s / 1000
        self._left_bytes = min(self._holds_bytes, self._left_bytes + added)
        self._filled_ms = now_ms

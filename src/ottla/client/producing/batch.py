"""Messages of one partition that are sent together: by column until the batch is closed, then as bytes."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client.producing.delivery import BatchDelivery, MessageDelivery, Part
from ottla.client.producing.producer_monitor import ProducerMonitor
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import RECORD_OVERHEAD_BYTES_MAX, encode_batch
from ottla.records.compression import Codec
from ottla.records.header import BATCH_OVERHEAD_BYTES
from ottla.records.message_set import RecordColumns
from ottla.records.record import Headers


class Batch:
    """`due_ms` is when it is sent at the latest, of the monotonic clock.

    A message is taken while it fits into `room_bytes`, which the accumulator grants piece by piece: so the common case
    needs no call of it.  `reserved_bytes` is what it takes of the producer's buffer.
    """

    __slots__ = (
        "_headers",
        "_keys",
        "_last_index",
        "_timestamps_ms",
        "_values",
        "batch_delivery",
        "due_ms",
        "is_taken",
        "opened_ms",
        "partition",
        "reserved_bytes",
        "room_bytes",
    )

    def __init__(
        self, partition: TopicPartition, monitor: ProducerMonitor, *, count_max: int, opened_ms: float, due_ms: float
    ) -> None:
        self.partition = partition
        self.opened_ms = opened_ms
        self.due_ms = due_ms
        self.is_taken = False
        self.room_bytes = 0
        self.reserved_bytes = BATCH_OVERHEAD_BYTES
        self._last_index = count_max - 1
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._headers: list[Headers] = []
        self._timestamps_ms: list[int] = []
        self.batch_delivery = BatchDelivery(monitor, partition, self._timestamps_ms)

    @property
    def count(self) -> int:
        return len(self._timestamps_ms)

    @property
    def room_count(self) -> int:
        """How many more messages it may hold."""
        return self._last_index + 1 - len(self._values)

    @property
    def used_bytes(self) -> int:
        return self.reserved_bytes - self.room_bytes

    @property
    def messages_bytes(self) -> int:
        """The bytes of keys, values and headers, until it is encoded."""
        return self.used_bytes - BATCH_OVERHEAD_BYTES - self.count * RECORD_OVERHEAD_BYTES_MAX

    def give_back(self) -> int:
        """Room that is granted and not used, so far."""
        room_bytes, self.room_bytes = self.room_bytes, 0
        self.reserved_bytes -= room_bytes
        return room_bytes

    def shrink(self, size_bytes: int) -> None:
        """It is encoded, and takes this much now."""
        self.reserved_bytes = size_bytes

    def grant(self, size_bytes: int) -> None:
        self.room_bytes += size_bytes
        self.reserved_bytes += size_bytes

    def append(
        self, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int, size_bytes: int
    ) -> MessageDelivery | None:
        """Take a message; None when there is no room for it, or it would be the last one: that is the accumulator's."""
        values = self._values
        index = len(values)
        if size_bytes > self.room_bytes or index >= self._last_index:
            return None
        # Fields set from here: a call of Python's for each message would cost more than the object.
        delivery = MessageDelivery()
        delivery.batch_delivery = self.batch_delivery
        delivery.index = index
        try:
            self._timestamps_ms.append(timestamp_ms)
            self._keys.append(key)
            self._headers.append(headers)
            values.append(value)
        except BaseException:  # Ctrl-C between two of them
            self._cut(index)
            raise
        self.room_bytes -= size_bytes
        return delivery

    def append_last(
        self, value: bytes | None, key: bytes | None, headers: Headers, timestamp_ms: int, size_bytes: int
    ) -> MessageDelivery:
        """Take the message that makes it full."""
        self._last_index += 1
        try:
            delivery = self.append(value, key, headers, timestamp_ms, size_bytes)
        finally:
            self._last_index -= 1
        assert delivery is not None, "the room was looked at before"
        return delivery

    def extend(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        headers: Headers,
        timestamp_ms: int,
        size_bytes: int,
        positions: Sequence[int],
    ) -> Part:
        """Take messages of a set, for which there is room."""
        assert size_bytes <= self.room_bytes, "the room was looked at before"
        assert len(values) <= self.room_count, "the room was looked at before"
        first, count = len(self._values), len(values)
        try:
            self._timestamps_ms += [timestamp_ms] * count
            self._keys += keys
            self._headers += [headers] * count
            self._values += values
        except BaseException:
            self._cut(first)
            raise
        self.room_bytes -= size_bytes
        return Part(self.batch_delivery, first, positions)

    def take(self) -> None:
        """It is the sending thread's from now on."""
        self.is_taken = True

    def encode(
        self, codec: Codec, level: int | None, *, has_checksum: bool, is_transactional: bool = False
    ) -> bytearray:
        """The batch in wire format.  Without a checksum where that depends on the number that it is sent with."""
        columns = RecordColumns(self._timestamps_ms, self._keys, self._values, self._headers)
        return encode_batch(
            columns, codec=codec, level=level, has_checksum=has_checksum, is_transactional=is_transactional
        )

    def drop_contents(self) -> None:
        """The messages are encoded: deliveries, which may be kept for long, do not keep them."""
        self._values, self._keys, self._headers = [], [], []

    def _cut(self, count: int) -> None:
        for column in (self._timestamps_ms, self._keys, self._headers, self._values):
            del column[count:]

"""The 61-byte header of a record batch, format v2 (KIP-98), and the checks that need no decompression.

 0  base offset            int64     outside the CRC: the broker assigns it
 8  batch length           int32     bytes that follow this field
12  leader epoch           int32     outside the CRC: the broker stamps it
16  magic                  int8      2
17  crc                    uint32    CRC-32C of everything from `attributes` on
21  attributes             int16     codec (bits 0-2), timestamp type (3), transactional (4), control (5)
23  last offset delta      int32
27  base timestamp         int64     ms
35  max timestamp          int64     ms
43  producer id            int64
51  producer epoch         int16
53  base sequence          int32
57  records count          int32
61  records
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

BATCH_OVERHEAD_BYTES: Final = 61
# base offset and batch length: the fields before the bytes that `batch_length` counts.
LOG_OVERHEAD_BYTES: Final = 12
MAGIC: Final = 2

LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
PRODUCER_AT: Final = 43
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
BASE_OFFSET: Final = struct.Struct(">q")
LEADER_EPOCH: Final = struct.Struct(">i")
# base offset, batch length, leader epoch: what a leader stamps, and the length between
BASE_OFFSET_TO_EPOCH: Final = struct.Struct(">qii")
CRC: Final = struct.Struct(">I")
PRODUCER_ID: Final = struct.Struct(">q")
# producer id, producer epoch, base sequence
PRODUCER: Final = struct.Struct(">qhi")
ATTRIBUTES: Final = struct.Struct(">h")
MAX_TIMESTAMP: Final = struct.Struct(">q")

assert HEADER.size == BATCH_OVERHEAD_BYTES


class BatchHeader(NamedTuple):
    """The header's fields in wire order.  `HEADER.unpack_from` gives the same tuple without the names (hot path)."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the buffer must hold at least `BATCH_OVERHEAD_BYTES` there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))

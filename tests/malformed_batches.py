"""Batches with a valid header and checksum whose records no client can read."""

from __future__ import annotations

from typing import Final

from ottla.records.builder import build_batch
from ottla.records.checksum import crc32c
from ottla.records.compression import Codec, compress
from ottla.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, CRC, CRC_AT, HEADER, LOG_OVERHEAD_BYTES
from ottla.records.record import Record

RECORDS_COUNT: Final = 3
_VALUE: Final = b"value"
# Length, attributes, time, offset delta, null key, length of the value: where each record's fields are.
_LENGTH_AT, _DELTA_AT, _VALUE_LENGTH_AT, _HEADERS_AT = 0, 3, 5, 11
_RECORD_BYTES: Final = 12


def _changed(changes: dict[int, int]) -> bytes:
    """The second of three records with other bytes at these places."""
    whole = build_batch([Record(number, 1_000, None, _VALUE) for number in range(RECORDS_COUNT)])
    area = bytearray(whole[BATCH_OVERHEAD_BYTES:])
    assert len(area) == RECORDS_COUNT * _RECORD_BYTES
    for at, byte in changes.items():
        area[_RECORD_BYTES + at] = byte
    return bytes(area)


# The bytes after the header, by the error in them.
SHAPES: Final = {
    "a length that ends within the next record": _changed({_LENGTH_AT: 26}),
    "a value that ends beyond its record": _changed({_VALUE_LENGTH_AT: 60}),
    "a negative count of headers": _changed({_HEADERS_AT: 1}),
    "a number that never ends": _changed(dict.fromkeys(range(_DELTA_AT, _RECORD_BYTES), 0xFF)),
    "bytes behind the last record": _changed({}) + b"\x00",
}


def malformed_batch(
    area: bytes = SHAPES["a value that ends beyond its record"], codec: Codec = Codec.NONE
) -> bytearray:
    """A batch that claims three records."""
    body = compress(codec, area) if codec else area
    fields = list(HEADER.unpack_from(build_batch([Record(0, 1_000, None, _VALUE)] * RECORDS_COUNT)))
    fields[1], fields[5] = BATCH_OVERHEAD_BYTES - LOG_OVERHEAD_BYTES + len(body), int(codec)
    made = bytearray(BATCH_OVERHEAD_BYTES)
    HEADER.pack_into(made, 0, *fields)
    made += body
    CRC.pack_into(made, CRC_AT, crc32c(memoryview(made)[ATTRIBUTES_AT:]))
    return made

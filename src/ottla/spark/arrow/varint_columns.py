"""Varints of many records at once: each function works on a whole column of positions or values.

Kafka's varints are protobuf's: seven bits a byte, the lowest first, zigzag for signed numbers.  Reads never leave the
buffer: positions beyond it are clipped to its last byte, and the caller detects them by comparing the end of a record's
fields with the end of the record (`record_fields`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ottla.spark.errors import UnreadableElement

Ints: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def read_varints(data: Octets, at: Ints, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Ints, Ints]:
    """The raw (still zigzag) varint at each position, and the position after each.

    Raises `UnreadableElement` for a varint longer than `bytes_max`.
    """
    byte = data.take(at, mode="clip")
    behind = at + 1
    if not len(at) or byte.max() < 128:
        return byte.astype(np.int64), behind
    value = (byte & 127).astype(np.int64)
    if byte.min() >= 128:
        # The common case of lengths over 63: every element has a second byte, so no selection is needed for it.
        byte = data.take(behind, mode="clip")
        value |= (byte & 127).astype(np.int64) << 7
        behind += 1
        shift = 14
    else:
        shift = 7
    rest = np.flatnonzero(byte >= 128)
    while len(rest):
        if shift >= 7 * bytes_max:
            raise UnreadableElement(int(rest[0]), f"a variable-length number has more than {bytes_max} bytes")
        byte = data.take(behind[rest], mode="clip")
        value[rest] |= (byte & 127).astype(np.int64) << shift
        behind[rest] += 1
        rest = rest[byte >= 128]
        shift += 7
    return value, behind


def from_zigzag(raw: Ints) -> Ints:
    """Signed numbers from raw varints; the shift is logical, so 64-bit values are correct."""
    return (raw.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(raw & 1)


def to_zigzag(numbers: Ints) -> Ints:
    return (numbers << 1) ^ (numbers >> 63)


def varint_sizes(raw: Ints) -> Ints:
    """The size of each raw varint in bytes."""
    unsigned = raw.view(np.uint64)
    sizes = np.ones(len(raw), np.int64)
    bound = 1 << 7
    while len(raw) and bound <= int(unsigned.max()):
        sizes += unsigned >= np.uint64(bound)
        bound <<= 7
    return sizes


def write_varints(target: Octets, at: Ints, raw: Ints, sizes: Ints) -> None:
    """Write each raw varint of the given size at its position; the places must not overlap."""
    if not len(raw):
        return
    unsigned = raw.view(np.uint64)
    place, left = at, sizes
    for _ in range(int(sizes.max())):
        low = (unsigned & np.uint64(127)).astype(np.uint8)
        more = left > 1
        target[place] = low | (more.view(np.uint8) << 7)
        if not more.all():
            place, unsigned, left = place[more], unsigned[more], left[more]
        place = place + 1
        unsigned = unsigned >> np.uint64(7)
        left = left - 1

"""CRC-32C, and the check of a whole batch."""

from __future__ import annotations

from typing import Final

from crc32c import crc32c as _crc32c

from ottla.records.header import ATTRIBUTES_AT, CRC, CRC_AT

crc32c: Final = _crc32c


def has_valid_crc(batch: memoryview) -> bool:
    """Whether the checksum in the batch's header matches its bytes from `attributes` to the end."""
    return bool(_crc32c(batch[ATTRIBUTES_AT:]) == CRC.unpack_from(batch, CRC_AT)[0])

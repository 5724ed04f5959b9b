"""Errors in the bytes of a record batch.

WireError
  CorruptBatch           the batch breaks format v2: cut off, impossible counts or lengths, wrong checksum
    CorruptCompression   its records cannot be decompressed
  DecompressedTooLarge   its records would take more memory than the reader allows
  CompressedTooLarge     its records, compressed, would be larger than the batch may be
"""

from __future__ import annotations

from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError


class CorruptBatch(WireError):
    """The bytes are not a record batch of format v2, or were damaged in transit."""

    error_code = ErrorCode.CORRUPT_MESSAGE
    hint = "the sender wrote a damaged or hostile batch; skip it by reading from the next offset"


class CorruptCompression(CorruptBatch):
    """The bytes are not valid for the batch's codec."""


class DecompressedTooLarge(WireError):
    """Decompression was stopped at the reader's limit."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE
    hint = "raise the reader's limit for decompressed batches if the sender is trusted"

    def __init__(self, codec: str, size_bytes_max: int) -> None:
        super().__init__(f"{codec} data decompresses to more than {size_bytes_max} bytes")


class CompressedTooLarge(WireError):
    """Compression was stopped at the caller's limit."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, codec: str, size_bytes_max: int) -> None:
        super().__init__(f"{codec} data is larger than {size_bytes_max} bytes")

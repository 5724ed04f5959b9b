"""What a leader answers to its follower, as it comes from the wire."""

from __future__ import annotations

from ottla.protocol.replica_fetch import FetchedPartition

NO_RECORDS = memoryview(b"")


def fetched(
    records: memoryview = NO_RECORDS,
    *,
    code: int = 0,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> FetchedPartition:
    """The answer for a partition of any key."""
    return FetchedPartition(bytes(16), 0, code, high_watermark, log_start, diverging, None, records)

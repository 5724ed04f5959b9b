"""The partition of `__consumer_offsets` that a group belongs to."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_HASH_LIMIT: Final = 1 << 32
_SIGN: Final = 1 << 31


@lru_cache(maxsize=4096)
def partition_of(group_id: str, partitions_count: int) -> int:
    """The partition that holds a group: `String.hashCode` of its id as Java has it, without its sign."""
    units = group_id.encode("utf-16-be")
    hashed = 0
    for index in range(0, len(units), 2):
        hashed = (31 * hashed + (units[index] << 8) + units[index + 1]) % _HASH_LIMIT
    signed = hashed - _HASH_LIMIT if hashed >= _SIGN else hashed
    # The smallest int has no absolute value in Java; Apache Kafka takes 0 for it.
    return 0 if signed == -_SIGN else abs(signed) % partitions_count

"""Kafka's default partitioning: murmur2 of the key, and runs for records without one."""

from __future__ import annotations

import numpy as np

from ottla.spark.arrow.key_hashes import NO_KEY
from ottla.spark.arrow.varint_columns import Ints


def partitions_of(key_hashes: Ints, row_sizes: Ints, partitions_count: int, first_run: int, run_bytes: int) -> Ints:
    """The partition of every row; `key_hashes` has `NO_KEY` for a row without one.

    A row with a key goes to the partition of Kafka's producers: `(murmur2 & 0x7fffffff) % partitions`.  Rows without a
    key form runs of about `run_bytes` (for full batches, as in KIP-480), which go to the partitions in turn.
    """
    has_none = key_hashes == NO_KEY
    if not has_none.any():
        return (key_hashes & 0x7FFFFFFF) % partitions_count
    run = np.cumsum(np.where(has_none, row_sizes, 0)) // run_bytes
    return np.where(has_none, first_run + run, key_hashes & 0x7FFFFFFF) % partitions_count

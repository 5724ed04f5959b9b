"""Which partition each row goes to, and the rows of each partition together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ottla.spark.arrow import compiled_rows
from ottla.spark.arrow.key_hashes import NO_KEY
from ottla.spark.arrow.varint_columns import Ints


def partitions_of(key_hashes: Ints, row_sizes: Ints, partitions_count: int, first_run: int, run_bytes: int) -> Ints:
    """The partition of every row; `key_hashes` has `NO_KEY` for a row without one.

    A row with a key goes to the partition of Kafka's producers: `(murmur2 & 0x7fffffff) % partitions`.  Rows without a
    key form runs of about `run_bytes` (for full batches, as in KIP-480), which go to the partitions in turn.
    """
    if compiled_rows.COMPILED is not None:
        return compiled_rows.COMPILED.choose_partitions(key_hashes, row_sizes, partitions_count, first_run, run_bytes)
    has_none = key_hashes == NO_KEY
    if not has_none.any():
        return (key_hashes & 0x7FFFFFFF) % partitions_count
    run = np.cumsum(np.where(has_none, row_sizes, 0)) // run_bytes
    return np.where(has_none, first_run + run, key_hashes & 0x7FFFFFFF) % partitions_count


def by_partition(partitions: Ints, partitions_count: int) -> Iterator[tuple[int, Ints]]:
    """Each partition that has rows, with their indices, in their order."""
    order, ends = _grouped(partitions, partitions_count)
    starts = np.concatenate(([0], ends[:-1]))
    for partition in np.flatnonzero(ends > starts).tolist():
        yield partition, order[starts[partition] : ends[partition]]


def _grouped(partitions: Ints, partitions_count: int) -> tuple[Ints, Ints]:
    """The indices of the rows, those of each partition together, and where those of each end."""
    if compiled_rows.COMPILED is not None:
        return compiled_rows.COMPILED.group(partitions, partitions_count)
    # Numbers of 16 bits are sorted by counting.
    narrow = partitions.astype(np.uint16) if partitions_count <= 1 << 16 else partitions
    order = np.argsort(narrow, kind="stable").astype(np.int64)
    return order, np.cumsum(np.bincount(partitions, minlength=partitions_count), dtype=np.int64)

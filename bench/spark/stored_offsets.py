"""Whether a table holds each offset of a topic exactly once; in little memory for any size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.raw_client.load import LoadFailed


def check_each_once(target: Path, end_offsets: Mapping[int, int]) -> int:
    """Partitions begin at offset 0.  The sum of the values' lengths.  Raises LoadFailed with what is wrong."""
    # A bit would do; a byte for each offset is simpler.
    times_seen = {partition: np.zeros(end, np.uint8) for partition, end in end_offsets.items()}
    rows_count = dict.fromkeys(end_offsets, 0)
    value_bytes = 0
    for batch in DeltaTable(str(target)).to_pyarrow_dataset().to_batches(columns=["partition", "offset", "value"]):
        value_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py() or 0
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions).tolist():
            mine = offsets[partitions == partition]
            end = end_offsets.get(partition, 0)
            if mine.min() < 0 or mine.max() >= end:
                raise LoadFailed(f"partition {partition}: offsets {mine.min()}..{mine.max()}, but it ends at {end}")
            rows_count[partition] += len(mine)
            times_seen[partition][mine] = 1
    for partition, seen in times_seen.items():
        distinct = int(np.count_nonzero(seen))
        if not distinct == rows_count[partition] == len(seen):
            raise LoadFailed(
                f"partition {partition}: {rows_count[partition]} rows with {distinct} offsets of {len(seen)}"
            )
    return value_bytes

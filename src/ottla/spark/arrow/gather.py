"""Values scattered in a buffer, copied by Arrow into one binary column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.record_fields import ByteSpans
from ottla.spark.arrow.varint_columns import Octets


def gather(data: Octets, spans: ByteSpans) -> pa.Array:
    """A `binary` column of the spans, which ascend and do not overlap; the buffer is below 2 GiB.

    A binary array with two slots a value (the gap before it, the value) is laid over the buffer without a copy;
    `take` of every second slot then copies all values in C++.
    """
    count = len(spans.positions)
    is_null = spans.lengths < 0
    if count == 0 or is_null.all():
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = spans.positions
    np.add(spans.positions, spans.lengths, out=offsets[2::2], casting="unsafe")
    if is_null.any():
        offsets[2::2] += is_null
    slots = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    wanted = np.arange(1, 2 * count, 2, dtype=np.int32)
    return slots.take(pa.array(wanted, mask=is_null) if is_null.any() else pa.array(wanted))

"""Confluent's wire format in a column: a byte 0, the schema's id in four bytes, the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.varint_columns import Ints, Octets

HEAD_BYTES: Final = 5
_MAGIC: Final = 0


@dataclass(frozen=True, slots=True)
class WireColumn:
    """Of each row the schema's id, and where its record lies in `data`: from `starts` to `ends`.

    `is_null`: there is no value; `is_foreign`: it is not of this format.  The rest of such rows means nothing.
    """

    data: Octets
    ids: Ints
    starts: Ints
    ends: Ints
    is_null: np.ndarray[Any, np.dtype[np.bool_]]
    is_foreign: np.ndarray[Any, np.dtype[np.bool_]]

    def payload(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]].tobytes()


def split(column: pa.Array) -> WireColumn:
    """A `binary` column, looked at without copying."""
    column = column if column.type == pa.binary() else column.cast(pa.binary())
    count = len(column)
    _, offsets, values = column.buffers()
    if count == 0 or offsets is None:
        bounds = np.zeros(count + 1, np.int64)
    else:
        bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + count + 1].astype(np.int64)
    data = np.frombuffer(values, np.uint8) if values is not None and values.size else np.zeros(1, np.uint8)
    starts, ends = bounds[:-1], bounds[1:]
    is_null = column.is_null().to_numpy(zero_copy_only=False).astype(np.bool_)
    is_short = ends - starts < HEAD_BYTES
    is_foreign = ~is_null & (is_short | (data.take(starts, mode="clip") != _MAGIC))
    ids = np.zeros(count, np.int64)
    for index in range(1, HEAD_BYTES):
        ids = (ids << 8) | data.take(starts + index, mode="clip")
    return WireColumn(data, ids, starts + HEAD_BYTES, ends, is_null, is_foreign)

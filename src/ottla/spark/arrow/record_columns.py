"""Rows for a topic as Arrow columns, one part for each Arrow batch that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.columns import HEADERS_TYPE
from ottla.spark.arrow.varint_columns import Ints
from ottla.spark.errors import UnencodableColumn


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """`binary` or `large_binary` keys and values, `headers` of `HEADERS_TYPE` or None, timestamps in ms."""

    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    timestamps_ms: Ints

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Ints) -> RecordColumns:
        index = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(index)
        return RecordColumns(self.keys.take(index), self.values.take(index), headers, self.timestamps_ms[rows])


def combined(parts: Sequence[RecordColumns]) -> RecordColumns:
    """All rows in one part, with keys and values as `binary`."""
    has_headers = any(part.headers is not None for part in parts)
    headers = [pa.nulls(len(part), HEADERS_TYPE) if part.headers is None else part.headers for part in parts]
    return RecordColumns(
        _joined([part.keys.cast(pa.binary()) for part in parts]),
        _joined([part.values.cast(pa.binary()) for part in parts]),
        _joined(headers) if has_headers else None,
        np.concatenate([part.timestamps_ms for part in parts]),
    )


def _joined(columns: list[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def as_binary(column: pa.Array, name: str) -> pa.Array:
    """A key or value column as `binary` or `large_binary`.

    Raises `UnencodableColumn` for a type without a byte form.
    """
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_null(kind) or any(
        is_type(kind)
        for is_type in (
            pa.types.is_string,
            pa.types.is_binary_view,
            pa.types.is_string_view,
            pa.types.is_fixed_size_binary,
        )
    ):
        return column.cast(pa.binary())
    raise UnencodableColumn(
        f"the column {name!r} is {kind}; Kafka records carry bytes", hint=f"cast it: CAST({name} AS STRING) or to_json"
    )


def as_headers(column: pa.Array) -> pa.Array:
    """The headers column in our own type.  Raises `UnencodableColumn` for another shape."""
    try:
        return column.cast(HEADERS_TYPE)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise UnencodableColumn(
            f"the column 'headers' is {column.type}", hint="it must be array<struct<key:string,value:binary>>"
        ) from error


def nameless_header() -> UnencodableColumn:
    return UnencodableColumn("a header's key is null", hint="give every header a key, or leave the header out")


def records_too_large() -> UnencodableColumn:
    return UnencodableColumn(
        "a row has 2 GiB or more", hint="Kafka's batches are smaller, and the default limit of brokers is 1 MiB"
    )

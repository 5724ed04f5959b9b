"""Avro records of one schema decoded together, field after field: each step is one for all rows.

Records of primitives, optional values, enums, fixed and records within take this way; what has arrays, maps or other
unions is read row by row (avro_decoder.py), and so is a batch in which a single row breaks the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.record_fields import ByteSpans, gather
from ottla.spark.arrow.varint_columns import VARLONG_BYTES_MAX, Ints, Octets, from_zigzag, read_varints
from ottla.spark.schemas.avro_types import MILLIS

Json = Any

INT_MAX: Final = 2**31 - 1


class NotByColumns(Exception):
    """These rows, or this schema, must be read row by row."""


class Found(NamedTuple):
    """A column, and the position behind each row's value."""

    column: pa.Array
    behind: Ints


class FieldReader(Protocol):
    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        """Raises `NotByColumns`, or what Arrow and varints raise, when a row breaks the format."""
        ...


def column_reader(schema: Json) -> FieldReader:
    """Of a resolved schema.  Raises `NotByColumns`."""
    if isinstance(schema, list):
        null, others = {"type": "null"}, [branch for branch in schema if branch != {"type": "null"}]
        if len(schema) != 2 or len(others) != 1:
            raise NotByColumns
        return _Optional(schema.index(null), column_reader(others[0]))
    kind, logical = schema["type"], schema.get("logicalType")
    match kind:
        case "null":
            return _Null()
        case "boolean":
            return _Boolean()
        case "int" | "long":
            return _Whole(kind == "int", logical)
        case "float":
            return _Floating(np.dtype("<f4"))
        case "double":
            return _Floating(np.dtype("<f8"))
        case "bytes" | "fixed" if logical == "decimal":
            raise NotByColumns
        case "bytes" | "string":
            return _Bytes(is_text=kind == "string")
        case "fixed":
            return _Fixed(schema["size"])
        case "enum":
            return _Enum(schema["symbols"])
        case "record" if schema["fields"]:
            readers = [(field["name"], column_reader(field["type"])) for field in schema["fields"]]
            return _Record(readers)
    raise NotByColumns


class _Null:
    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        return Found(pa.nulls(len(at)), at)


class _Boolean:
    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        byte = data.take(at, mode="clip")
        if len(at) and byte.max() > 1:
            raise NotByColumns
        return Found(pa.array(byte.astype(np.bool_)), at + 1)


class _Whole:
    def __init__(self, is_int: bool, logical: str | None) -> None:
        self._is_int = is_int
        self._logical = logical

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        numbers, behind = _numbers(data, at)
        if not self._is_int:
            column = pa.array(numbers)
            if self._logical in MILLIS:
                unit = MILLIS[self._logical]
                return Found(column.cast(unit).cast(pa.timestamp("us", tz=unit.tz)), behind)
            if self._logical == "timestamp-micros":
                return Found(column.cast(pa.timestamp("us", tz="UTC")), behind)
            if self._logical == "local-timestamp-micros":
                return Found(column.cast(pa.timestamp("us")), behind)
            return Found(column, behind)
        if len(numbers) and (numbers.max() > INT_MAX or numbers.min() < ~INT_MAX):
            raise NotByColumns
        column = pa.array(numbers.astype(np.int32))
        return Found(column.cast(pa.date32()) if self._logical == "date" else column, behind)


class _Floating:
    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind = kind

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        places = at[:, None] + np.arange(self._kind.itemsize)
        octets = data.take(places, mode="clip")
        return Found(pa.array(octets.view(self._kind).ravel()), at + self._kind.itemsize)


class _Bytes:
    def __init__(self, *, is_text: bool) -> None:
        self._is_text = is_text

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        lengths, starts = _numbers(data, at)
        if not _fits(starts, lengths, ends):
            raise NotByColumns
        column = gather(data, ByteSpans(starts, lengths))
        # The cast checks the UTF-8.
        return Found(column.cast(pa.string()) if self._is_text else column, starts + lengths)


class _Fixed:
    def __init__(self, size: int) -> None:
        self._size = size

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        lengths = np.full(len(at), self._size, np.int64)
        if not _fits(at, lengths, ends):
            raise NotByColumns
        return Found(gather(data, ByteSpans(at, lengths)), at + self._size)


class _Enum:
    def __init__(self, symbols: Sequence[str]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        indices, behind = _numbers(data, at)
        if len(indices) and (indices.min() < 0 or indices.max() >= len(self._symbols)):
            raise NotByColumns
        return Found(self._symbols.take(pa.array(indices)), behind)


class _Optional:
    def __init__(self, null_index: int, inner: FieldReader) -> None:
        self._null_index = null_index
        self._inner = inner

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        branches, behind = _numbers(data, at)
        if len(branches) and (branches.min() < 0 or branches.max() > 1):
            raise NotByColumns
        present = np.flatnonzero(branches != self._null_index)
        found = self._inner.read(data, behind[present], ends[present])
        if len(present) == len(at):
            return found
        behind[present] = found.behind
        places = np.zeros(len(at), np.int64)
        places[present] = np.arange(len(present))
        is_null = branches == self._null_index
        return Found(found.column.take(pa.array(places, mask=is_null)), behind)


class _Record:
    def __init__(self, fields: Sequence[tuple[str, FieldReader]]) -> None:
        self._fields = fields

    def read(self, data: Octets, at: Ints, ends: Ints) -> Found:
        columns = []
        for _, reader in self._fields:
            column, at = reader.read(data, at, ends)
            columns.append(column)
        if not (at <= ends).all():
            raise NotByColumns
        return Found(pa.StructArray.from_arrays(columns, names=[name for name, _ in self._fields]), at)


def _numbers(data: Octets, at: Ints) -> tuple[Ints, Ints]:
    raw, behind = read_varints(data, at, VARLONG_BYTES_MAX)
    return from_zigzag(raw), behind


def _fits(starts: Ints, lengths: Ints, ends: Ints) -> bool:
    # Lengths first: a sum with one near the limit of 64 bits would wrap.
    return bool((lengths >= 0).all() and (lengths <= ends - starts).all() and (starts <= ends).all())

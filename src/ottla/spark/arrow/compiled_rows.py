"""The compiled form of `joined_records` (`encoder`), `key_hashes` and `row_groups`, where the package was built with a
C compiler.

`record_rows.c` writes records straight from Arrow's buffers, where numpy and Arrow copy every value five times on
the way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from ottla.spark.arrow.record_columns import RecordColumns, nameless_header, records_too_large
from ottla.spark.arrow.varint_columns import Ints, Octets

LIBRARY: Final = Path(__file__).with_name("librecord_rows.so")
# That of the source; a library that was built from another one is not used.
_INTERFACE: Final = 3
_NAMELESS_HEADER: Final = -2
_TOO_LARGE: Final = -3
_NO_ROOM: Final = -4

_POINTER: Final = ctypes.c_void_p
_NUMBER: Final = ctypes.c_int64


class _Column(ctypes.Structure):
    """`ottla_column`; all zero, every cell is null."""

    _fields_ = (
        ("validity", _POINTER),
        ("offsets", _POINTER),
        ("data", _POINTER),
        ("data_end", _NUMBER),
        ("first", _NUMBER),
        ("offset_bytes", _NUMBER),
    )


class _Part(ctypes.Structure):
    """`ottla_rows_part`."""

    _fields_ = (
        ("first_row", _NUMBER),
        ("rows_count", _NUMBER),
        ("keys", _Column),
        ("values", _Column),
        ("header_lists", _Column),
        ("headers", _Column),
        ("header_names", _Column),
        ("header_values", _Column),
    )


class CompiledRows:
    """The rows of some parts, numbered over all of them."""

    def __init__(self, library: ctypes.CDLL, parts: Sequence[RecordColumns]) -> None:
        self._library = library
        # Where records are written: fresh memory for each batch would cost more than the writing.
        self._memory: Octets = np.empty(0, np.uint8)
        self._count = sum(map(len, parts))
        # The buffers must live as long as what points to them.
        self._kept = parts
        self._parts = (_Part * len(parts))()
        self._timestamps_ms: Ints = np.ascontiguousarray(
            np.concatenate([part.timestamps_ms for part in parts]), np.int64
        )
        first_row = 0
        for place, part in zip(self._parts, parts, strict=True):
            _describe(place, part)
            place.first_row = first_row
            first_row += len(part)
        assert len(self._timestamps_ms) == self._count, "every row has a timestamp"

    def sizes_max(self) -> Ints:
        sizes = np.empty(self._count, np.int64)
        _checked(self._library.ottla_row_sizes_max(self._parts, len(self._parts), sizes.ctypes.data))
        return sizes

    def key_hashes(self) -> Ints:
        hashes = np.empty(self._count, np.int64)
        _checked(self._library.ottla_key_hashes(self._parts, len(self._parts), hashes.ctypes.data))
        return hashes

    def records(self, rows: Ints, size_bytes_max: int) -> memoryview:
        if size_bytes_max > len(self._memory):
            self._memory = np.empty(size_bytes_max, np.uint8)
        return self._memory.data[: self.write(rows, self._memory)]

    def write(self, rows: Ints, target: Octets) -> int:
        """The records of these rows, at the beginning of `target`: the count of their bytes."""
        assert rows.dtype == np.int64, "numbers of rows have 64 bits"
        assert rows.flags.c_contiguous, "the library reads them one after the other"
        what = (self._parts, len(self._parts), rows.ctypes.data, len(rows), self._timestamps_ms.ctypes.data)
        return _checked(self._library.ottla_write_records(*what, target.ctypes.data, len(target)))


class RowLibrary:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def rows(self, parts: Sequence[RecordColumns]) -> CompiledRows:
        return CompiledRows(self._library, parts)

    def choose_partitions(
        self, key_hashes: Ints, row_sizes: Ints, partitions_count: int, first_run: int, run_bytes: int
    ) -> Ints:
        """`row_groups.partitions_of`."""
        hashes, sizes = _contiguous(key_hashes), _contiguous(row_sizes)
        assert len(hashes) == len(sizes), "every row has a size"
        chosen = np.empty(len(hashes), np.int64)
        rows = (hashes.ctypes.data, sizes.ctypes.data, len(hashes))
        _checked(
            self._library.ottla_choose_partitions(*rows, partitions_count, first_run, run_bytes, chosen.ctypes.data)
        )
        return chosen

    def group(self, partitions: Ints, partitions_count: int) -> tuple[Ints, Ints]:
        """`row_groups.grouped`."""
        each = _contiguous(partitions)
        order, ends = np.empty(len(each), np.int64), np.empty(partitions_count, np.int64)
        rows = (each.ctypes.data, len(each), partitions_count)
        _checked(self._library.ottla_group_rows(*rows, order.ctypes.data, ends.ctypes.data))
        return order, ends


def load_row_library(path: Path) -> RowLibrary | None:
    """None without a library that belongs to this module."""
    try:
        library = ctypes.CDLL(str(path))
        if library.ottla_record_rows_interface() != _INTERFACE:
            return None
        parts = (_POINTER, _NUMBER)
        for name, arguments in (
            ("ottla_row_sizes_max", (*parts, _POINTER)),
            ("ottla_key_hashes", (*parts, _POINTER)),
            ("ottla_write_records", (*parts, _POINTER, _NUMBER, _POINTER, _POINTER, _NUMBER)),
            ("ottla_choose_partitions", (_POINTER, _POINTER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _POINTER)),
            ("ottla_group_rows", (_POINTER, _NUMBER, _NUMBER, _POINTER, _POINTER)),
        ):
            function = getattr(library, name)
            function.restype = _NUMBER
            function.argtypes = arguments
    except (OSError, AttributeError):
        return None
    return RowLibrary(library)


def _contiguous(column: Ints) -> Ints:
    return np.ascontiguousarray(column, np.int64)


def _checked(answer: int) -> int:
    if answer == _NAMELESS_HEADER:
        raise nameless_header()
    if answer == _TOO_LARGE:
        raise records_too_large()
    assert answer != _NO_ROOM, "the records have room where they are written"
    if answer < 0:
        raise pa.ArrowInvalid("a column's offsets are not inside of its data, or a row is not there")
    return int(answer)


def _describe(place: _Part, part: RecordColumns) -> None:
    count = place.rows_count = len(part)
    assert len(part.keys) == count, "as many keys as values"
    _describe_bytes(place.keys, part.keys)
    _describe_bytes(place.values, part.values)
    if part.headers is None:
        return
    assert len(part.headers) == count, "as many headers as values"
    elements = part.headers.values
    _describe_cells(place.header_lists, part.headers, 4)
    place.header_lists.data_end = len(elements)
    _describe_validity(place.headers, elements)
    # Of a struct array that is a slice, these are slices of the fields.
    _describe_bytes(place.header_names, elements.field(0))
    _describe_bytes(place.header_values, elements.field(1))


def _describe_bytes(place: _Column, column: pa.Array) -> None:
    _describe_cells(place, column, 8 if pa.types.is_large_binary(column.type) else 4)
    data = column.buffers()[2]
    if data is not None:
        place.data, place.data_end = data.address, data.size


def _describe_cells(place: _Column, column: pa.Array, offset_bytes: int) -> None:
    _describe_validity(place, column)
    place.offset_bytes = offset_bytes
    offsets = column.buffers()[1]
    # Arrow allows no offsets at all for no rows.
    if len(column) == 0 or column.null_count == len(column):
        return
    if offsets is None or offsets.size < (column.offset + len(column) + 1) * offset_bytes:
        raise pa.ArrowInvalid("a column has fewer offsets than rows")
    place.offsets = offsets.address


def _describe_validity(place: _Column, column: pa.Array) -> None:
    place.first = column.offset
    validity = column.buffers()[0]
    if validity is None or not column.null_count:
        return
    if validity.size * 8 < column.offset + len(column):
        raise pa.ArrowInvalid("a column has fewer validity bits than rows")
    place.validity = validity.address


COMPILED: Final = load_row_library(LIBRARY)

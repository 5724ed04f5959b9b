"""Rows that are decoded one by one: a column of those that could be, and the reasons of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

ERROR_CHARS_MAX: Final = 300


class DecodedRows(NamedTuple):
    """`errors` is None when all could be decoded; a row with an error is null."""

    column: pa.Array
    errors: Sequence[str | None] | None


def rows_as_column(
    payloads: Sequence[bytes], decode: Callable[[bytes], object], raw_type: pa.DataType, column_type: pa.DataType
) -> DecodedRows:
    """`raw_type`: of what `decode` returns; it is cast to `column_type`."""
    rows: list[object] = []
    errors: list[str | None] = []
    for payload in payloads:
        try:
            rows.append(decode(payload))
            errors.append(None)
        except Exception as error:  # noqa: BLE001 (any error of a library for these bytes becomes the row's error)
            rows.append(None)
            errors.append(error_text(error))
    try:
        column = pa.array(rows, raw_type).cast(column_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        column = _one_by_one(rows, errors, raw_type, column_type)
    return DecodedRows(column, errors if any(errors) else None)


def _one_by_one(
    rows: Sequence[object], errors: list[str | None], raw_type: pa.DataType, column_type: pa.DataType
) -> pa.Array:
    made = []
    for index, row in enumerate(rows):
        try:
            made.append(pa.array([row], raw_type).cast(column_type))
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            made.append(pa.nulls(1, column_type))
            errors[index] = error_text(error)
    return pa.concat_arrays(made)


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX]

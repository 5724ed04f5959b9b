"""The time of an event that is inside its value, read from whole batches."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT64: Final = range(-(2**63), 2**63)


def json_field(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    """For `event_time`: a field of values that are JSON objects, with milliseconds since 1970, or text in ISO 8601.

        Loader(..., event_time=json_field("at_ms"))

    Null, so that the record's own timestamp counts, where a value is no object or has no such field or time.  Text
    without a zone is UTC.  Whole numbers are read by Arrow, in about half of the time that texts take.
    """
    return _JsonField(name)


@dataclass(frozen=True, slots=True)
class _JsonField:
    name: str

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        values = batch.column("value")
        found = self._by_arrow(values)
        if found is not None:
            return found
        return pa.array([self._one(value) for value in values.to_pylist()], pa.int64())

    def _by_arrow(self, values: pa.Array) -> pa.Array | None:
        """None where Arrow would not give exactly a row for each value, or finds something else than whole numbers."""
        if not len(values) or values.null_count:
            return None
        trimmed = pc.binary_length(pc.ascii_trim_whitespace(values.cast(pa.string(), safe=False)))
        # Arrow reads documents one after the other.  Without a line's end in a value, and without an empty one, each
        # value is at least one row; so if there are as many rows as values, each is exactly one.
        has_lines = pc.any(pc.or_(pc.match_substring(values, "\n"), pc.match_substring(values, "\r"))).as_py()
        if has_lines or pc.min(trimmed).as_py() == 0:
            return None
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
        schema = pa.schema([pa.field(self.name, pa.int64())])
        options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        reading = arrow_json.ReadOptions(use_threads=False, block_size=max(1, lines.size + 1))
        try:
            table = arrow_json.read_json(io.BytesIO(lines), read_options=reading, parse_options=options)
        except pa.ArrowInvalid:
            return None
        return table.column(0).combine_chunks() if table.num_rows == len(values) else None

    def _one(self, value: bytes | None) -> int | None:
        if value is None:
            return None
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return None
        found = document.get(self.name) if isinstance(document, dict) else None
        if isinstance(found, bool) or found is None:
            return None
        if isinstance(found, int):
            return found if found in _INT64 else None
        return _iso_ms(found) if isinstance(found, str) else None


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)

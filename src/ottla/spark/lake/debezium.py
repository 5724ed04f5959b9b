"""Change events of databases, as Debezium writes them in JSON, as the rows of an upsert.

The envelope has the row before and after a change, and what the change was.  The value may be the envelope, or an
object with its schema that has the envelope as `payload`; the record's key, of the same two forms, has the row's keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.spark.errors import LakeError
from ottla.spark.lake.changes import DELETED
from ottla.spark.lake.json_objects import read_objects
from ottla.spark.lake.rows import Decode

# Created, read by a snapshot, updated.
_WRITES: Final = ("c", "r", "u")
_DELETE: Final = "d"
_PAYLOAD: Final = "payload"


def debezium_json(columns: pa.Schema, keys: Sequence[str], source: Mapping[str, pa.DataType] | None = None) -> Decode:
    """For `decode` of an upsert: the row after a change, or that a row was deleted.

        people = pa.schema([("id", pa.int64()), ("name", pa.string())])
        Loader(..., mode="upsert", keys=["id"], decode=debezium_json(people, ["id"]))

    `columns`: of the database's table, in the types that their JSON has; others are ignored.  `keys`: those of the
    row's key.  `source`: fields of the event's source that become columns, as `{"lsn": pa.int64()}` the column
    `source_lsn`, for `sequence_by`.

    A tombstone deletes the row, too.  Raises `LakeError` for a record that is no change of a row, by its offset.
    """
    for name in keys:
        if name not in columns.names:
            raise LakeError(f"the columns have no {name!r}, which is a key", hint="give its type")
    return DebeziumJson(columns, tuple(keys), dict(source or {}))


@dataclass(frozen=True, slots=True)
class DebeziumJson:
    """A `Decode`, picklable."""

    columns: pa.Schema
    keys: tuple[str, ...]
    source: Mapping[str, pa.DataType] = field(default_factory=dict)

    def __call__(self, records: pa.RecordBatch) -> pa.Table:
        values = records.column("value")
        is_tombstone = values.is_null()
        envelope = self._envelope(records, values, is_tombstone)
        op = envelope.column("op").combine_chunks()
        is_delete = pc.fill_null(pc.equal(op, _DELETE), False)
        is_write = pc.fill_null(pc.is_in(op, pa.array(_WRITES)), False)
        after = envelope.column("after").combine_chunks()
        self._check(records, pc.or_(pc.or_(is_tombstone, is_delete), pc.and_(is_write, after.is_valid())))
        found = dict(zip(self.columns.names, after.flatten(), strict=True))
        is_gone = pc.or_(is_delete, is_tombstone)
        if pc.any(is_gone).as_py():
            found |= self._keys_of_gone(records, found, is_gone)
        found[DELETED] = is_gone
        if self.source:
            given = envelope.column("source").combine_chunks().flatten()
            found |= {f"source_{name}": column for name, column in zip(self.source, given, strict=True)}
        return pa.table(found)

    def _envelope(self, records: pa.RecordBatch, values: pa.Array, is_tombstone: pa.Array) -> pa.Table:
        fields = [pa.field("after", pa.struct(list(self.columns))), pa.field("op", pa.string())]
        if self.source:
            fields.append(pa.field("source", pa.struct([pa.field(*each) for each in self.source.items()])))
        return _payloads(records, "value", pc.if_else(is_tombstone, b"{}", values), pa.schema(fields))

    def _keys_of_gone(
        self, records: pa.RecordBatch, found: Mapping[str, pa.Array], is_gone: pa.Array
    ) -> dict[str, pa.Array]:
        """From the record's key: the row before may be incomplete, and a tombstone has none."""
        schema = pa.schema([self.columns.field(name) for name in self.keys])
        keys = _payloads(records, "key", pc.fill_null(records.column("key"), b"{}"), schema)
        return {name: pc.if_else(is_gone, keys.column(name).combine_chunks(), found[name]) for name in self.keys}

    def _check(self, records: pa.RecordBatch, is_change: pa.Array) -> None:
        if not pc.all(is_change).as_py():
            raise _refused(records, pc.index(is_change, False).as_py(), "value", "is no change of a row")


def _payloads(records: pa.RecordBatch, name: str, texts: pa.Array, schema: pa.Schema) -> pa.Table:
    """The fields of the objects, or of those that are their `payload`."""
    both = pa.schema([*schema, pa.field(_PAYLOAD, pa.struct(list(schema)))])
    found = read_objects(texts, both)
    if found is None:
        found = read_objects(pa.array([_line(records, name, row, text) for row, text in enumerate(texts)]), both)
    if found is None:
        raise LakeError(
            f"{name}s of {records.column('topic')[0]} from offset {records.column('offset')[0]} on do not have "
            f"the types of the columns {', '.join(schema.names)}",
            hint="give the types that the JSON of the events has",
        )
    payload = found.column(_PAYLOAD).combine_chunks()
    if payload.null_count == len(payload):
        return found.drop_columns([_PAYLOAD])
    inner = dict(zip(schema.names, payload.flatten(), strict=True))
    return pa.table(
        {each: pc.if_else(payload.is_valid(), inner[each], found.column(each).combine_chunks()) for each in inner}
    )


def _line(records: pa.RecordBatch, name: str, row: int, text: pa.Scalar) -> bytes:
    """The object on one line."""
    try:
        document: Any = json.loads(text.as_py())
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _refused(records, row, name, "is no JSON object")
    return json.dumps(document).encode()


def _refused(records: pa.RecordBatch, row: int, name: str, problem: str) -> LakeError:
    place = [records.column(each)[row].as_py() for each in ("topic", "partition", "offset")]
    return LakeError(
        f"the {name} of the record at offset {place[2]} of {place[0]} partition {place[1]} {problem}",
        hint="a topic of one table's changes is loaded; events such as truncations are skipped by the connector",
    )

"""Change events of databases, as Debezium writes them, as the rows of an upsert.

The envelope has the row before and after a change, and what the change was; the record's key has the row's keys.  In
JSON each of the two may be an object with its schema that has the rest as `payload`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.runtime.installed import require_modules
from ottla.spark.errors import FunctionRefused, LakeError, RecordsRefused
from ottla.spark.lake.changes import DELETED, NO_CHANGE
from ottla.spark.lake.json_objects import read_objects
from ottla.spark.lake.rows import Decode

if TYPE_CHECKING:
    from ottla.spark.schemas.registry_security import RegistrySecurity

# Created, read by a snapshot, updated.
_WRITES: Final = ("c", "r", "u")
_DELETE: Final = "d"
_PAYLOAD: Final = "payload"
_HINT: Final = "a topic of one table's changes is loaded; events such as truncations are skipped by the connector"
# A schema's kind, its text, and those that it refers to.
_Plain = tuple[str, str, tuple[tuple[str, str], ...]]


def debezium_json(columns: pa.Schema, keys: Sequence[str], source: Mapping[str, pa.DataType] | None = None) -> Decode:
    """For `decode` of an upsert: the row after a change, or that a row was deleted.

        people = pa.schema([("id", pa.int64()), ("name", pa.string())])
        Loader(..., mode="upsert", keys=["id"], decode=debezium_json(people, ["id"]))

    `columns`: of the database's table, in the types that their JSON has; others are ignored.  `keys`: those of the
    row's key.  `source`: fields of the event's source that become columns, as `{"lsn": pa.int64()}` the column
    `source_lsn`, for `sequence_by`.

    A tombstone changes nothing in an upsert: the event before it has deleted the row.  Raises `LakeError` for a record
    that is no change of a row, by its offset.
    """
    for name in keys:
        if name not in columns.names:
            raise LakeError(f"the columns have no {name!r}, which is a key", hint="give its type")
    _check_names(columns.names, tuple(source or ()))
    return DebeziumJson(columns, tuple(keys), dict(source or {}))


def debezium_registry(
    registry: str, topic: str, *, source: Sequence[str] = (), security: Mapping[str, str] | None = None
) -> Decode:
    """The same for events whose schemas are in a registry, as Debezium writes them in Avro.

        decode = debezium_registry("http://localhost:8081", "shop.public.orders", source=["lsn"])
        Loader(..., mode="upsert", keys=["id"], sequence_by="source_lsn", decode=decode)

    The columns and their types are those of the newest schema of `TOPIC-value`, the keys those of `TOPIC-key`.
    `registry` and `security` as in `from_registry`, whose errors it raises.
    """
    require_modules("debezium_registry", ("fastavro",), "schemas")

    from ottla.spark.schemas.registry_decoder import plain
    from ottla.spark.schemas.registry_reader import shared_reader
    from ottla.spark.schemas.registry_security import RegistrySecurity

    secured = RegistrySecurity.of(security or {})
    reader = shared_reader(registry, secured)
    value, key = (plain(reader.latest(f"{topic}-{part}")) for part in ("value", "key"))
    return DebeziumRegistry(registry, secured, value, key, tuple(source))


@dataclass(frozen=True, slots=True)
class DebeziumJson:
    """A `Decode`, picklable."""

    columns: pa.Schema
    keys: tuple[str, ...]
    source: Mapping[str, pa.DataType] = field(default_factory=dict)

    @property
    def row_schema(self) -> pa.Schema:
        of_source = [pa.field(f"source_{name}", kind) for name, kind in self.source.items()]
        return pa.schema([*self.columns, pa.field(DELETED, pa.bool_()), *of_source])

    def __call__(self, records: pa.RecordBatch) -> pa.Table:
        values = records.column("value")
        fields = [pa.field("after", pa.struct(list(self.columns))), pa.field("op", pa.string())]
        if self.source:
            fields.append(pa.field("source", pa.struct([pa.field(*each) for each in self.source.items()])))
        texts = pc.if_else(values.is_null(), b"{}", values)
        envelope = _payloads(records, "value", texts, pa.schema(fields))
        columns = {name: envelope.column(name).combine_chunks() for name in envelope.schema.names}
        return _rows(records, columns, self._keys, tuple(self.source))

    def _keys(self, records: pa.RecordBatch) -> Mapping[str, pa.Array]:
        schema = pa.schema([self.columns.field(name) for name in self.keys])
        found = _payloads(records, "key", pc.fill_null(records.column("key"), b"{}"), schema)
        return {name: found.column(name).combine_chunks() for name in self.keys}


@dataclass(frozen=True, slots=True)
class DebeziumRegistry:
    """A `Decode`, picklable.  `value` and `key`: the schemas that are read."""

    registry: str
    security: RegistrySecurity
    value: _Plain
    key: _Plain
    source: tuple[str, ...]

    @property
    def row_schema(self) -> pa.Schema:
        kinds = {name: pa.binary() for name in ("key", "value")}
        places = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
        rows = self(pa.schema((kinds | places).items()).empty_table().combine_chunks().to_batches()[0])
        return pa.schema([each for each in rows.schema if each.name != NO_CHANGE])

    def __call__(self, records: pa.RecordBatch) -> pa.Table:
        envelope = self._decoded(records, "value", self.value)
        for name in ("after", "op", *(("source",) if self.source else ())):
            if name not in envelope:
                raise LakeError(f"the schema of the values has no {name!r}", hint="it is no envelope of Debezium")
        if self.source:
            given = _fields(envelope["source"])
            for name in self.source:
                if name not in given:
                    raise LakeError(f"the events' source has no {name!r}", hint=f"it has: {', '.join(given)}")
            envelope["source"] = pa.StructArray.from_arrays([given[name] for name in self.source], list(self.source))
        return _rows(records, envelope, self._keys, self.source)

    def _keys(self, records: pa.RecordBatch) -> Mapping[str, pa.Array]:
        return self._decoded(records, "key", self.key)

    def _decoded(self, records: pa.RecordBatch, name: str, schema: _Plain) -> dict[str, pa.Array]:
        from ottla.spark.schemas.registry_decoder import UNKNOWN_SCHEMA, shared_decoder

        found = shared_decoder(self.registry, self.security, *schema, None).decode(records.column(name))
        value, errors, _ = found.flatten()
        if errors.null_count < len(errors):
            is_unknown = pc.fill_null(pc.starts_with(errors, UNKNOWN_SCHEMA), False)
            # Not for ever: such a schema may be registered later.
            kind = LakeError if pc.any(is_unknown).as_py() else RecordsRefused
            row = pc.index(errors.is_valid() if kind is RecordsRefused else is_unknown, True).as_py()
            raise kind(_problem(records, row, name, f"cannot be read: {errors[row].as_py()}"), hint=_HINT)
        if not pa.types.is_struct(value.type):
            raise LakeError(f"the schema of the {name}s is no record", hint="it is none of a Debezium connector")
        return _fields(value)


def _rows(
    records: pa.RecordBatch,
    envelope: Mapping[str, pa.Array],
    keys_of: Callable[[pa.RecordBatch], Mapping[str, pa.Array]],
    source: Sequence[str],
) -> pa.Table:
    """`envelope`: after, op and source; `keys_of` gives the columns of the records' keys."""
    is_tombstone = records.column("value").is_null()
    op, after = envelope["op"], envelope["after"]
    is_gone = pc.or_(pc.fill_null(pc.equal(op, _DELETE), False), is_tombstone)
    is_write = pc.fill_null(pc.is_in(op, pa.array(_WRITES)), False)
    is_change = pc.or_(is_gone, pc.and_(is_write, after.is_valid()))
    if not pc.all(is_change).as_py():
        raise _refused(records, pc.index(is_change, False).as_py(), "value", "is no change of a row")
    found = _fields(after)
    _check_names(found, source)
    if pc.any(is_gone).as_py():
        # The row before may be incomplete, and a tombstone has none.
        for name, column in keys_of(records).items():
            if name in found:
                found[name] = pc.if_else(is_gone, column.cast(found[name].type), found[name])
    found[DELETED] = is_gone
    # It has no sequence, and a connector that restarts sends it again, when the key may have a row once more.
    found[NO_CHANGE] = is_tombstone
    if source:
        found |= {f"source_{name}": column for name, column in _fields(envelope["source"]).items()}
    return pa.table(found)


def _check_names(columns: Iterable[str], source: Iterable[str]) -> None:
    """Raises `FunctionRefused` for columns of the database that have the name of one that the rows have besides."""
    taken = {DELETED, *(f"source_{name}" for name in source)}
    for name in columns:
        if name in taken:
            raise FunctionRefused(
                f"the database's column {name!r} has the name of a column of the change",
                hint="leave it out, or load through a decode of your own that renames it",
            )


def _fields(column: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((each.name for each in column.type), column.flatten(), strict=True))


def _payloads(records: pa.RecordBatch, name: str, texts: pa.Array, schema: pa.Schema) -> pa.Table:
    """The fields of the objects, or of those that are their `payload`."""
    both = pa.schema([*schema, pa.field(_PAYLOAD, pa.struct(list(schema)))])
    found = read_objects(texts, both)
    if found is None:
        found = read_objects(pa.array([_line(records, name, row, text) for row, text in enumerate(texts)]), both)
    if found is None:
        raise RecordsRefused(
            f"{name}s of {records.column('topic')[0]} from offset {records.column('offset')[0]} on do not have "
            f"the types of the columns {', '.join(schema.names)}",
            hint="give the types that the JSON of the events has",
        )
    payload = found.column(_PAYLOAD).combine_chunks()
    if payload.null_count == len(payload):
        return found.drop_columns([_PAYLOAD])
    inner = _fields(payload)
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


def _refused(records: pa.RecordBatch, row: int, name: str, problem: str) -> RecordsRefused:
    return RecordsRefused(_problem(records, row, name, problem), hint=_HINT)


def _problem(records: pa.RecordBatch, row: int, name: str, problem: str) -> str:
    place = [records.column(each)[row].as_py() for each in ("topic", "partition", "offset")]
    return f"the {name} of the record at offset {place[2]} of {place[0]} partition {place[1]} {problem}"

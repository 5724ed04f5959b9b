"""A column of records in the wire format, each decoded by the schema that it was written with.

`registry_column` makes it a column of Spark: an Arrow function of Python's workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.pandas.types import from_arrow_type

from ottla.model.errors import ConfigError
from ottla.spark.arrow.varint_columns import Ints, Octets
from ottla.spark.schemas.avro_decoder import AvroDecoder, arrow_type, resolved
from ottla.spark.schemas.registry_reader import FoundSchema, UnknownSchema, UnreadableSchema, shared_reader
from ottla.spark.schemas.registry_security import RegistrySecurity
from ottla.spark.schemas.rows import DecodedRows, error_text, rows_as_column
from ottla.spark.spark_features import INSTALLED, SparkFeature

HEAD_BYTES: Final = 5
_MAGIC: Final = 0


@dataclass(frozen=True, slots=True)
class WireColumn:
    """Of each row the schema's id, and where its record is in `data`: from `starts` to `ends`.

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


AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
# A batch with so many ids that the registry does not know has foreign data: its other new ids are not requested.
UNKNOWN_IDS_OF_BATCH_MAX: Final = 16


class SchemaDecoder(Protocol):
    """Decodes rows of one writer's schema; `type` is its column's."""

    type: pa.DataType

    def decode(self, data: Octets, starts: Ints, ends: Ints) -> DecodedRows: ...


class SchemaSource(Protocol):
    """A registry (registry_reader.py)."""

    def by_id(self, schema_id: int) -> FoundSchema: ...


class RegistryDecoder:
    """`reader` is the schema of the columns; `message` that of Protobuf (its first, unless it is named).

    Each writer's schema is requested from `registry` once.  Raises `UnreadableSchema`.
    """

    def __init__(self, registry: SchemaSource, reader: FoundSchema, message: str | None = None) -> None:
        self._registry = registry
        self._kind = reader.type
        self._reader: Any = None
        match reader.type:
            case "AVRO":
                self._reader = resolved(reader)
                value_type = arrow_type(self._reader)
            case "JSON":
                value_type = pa.string()
            case "PROTOBUF":
                # With it comes a compiler's module, which the others do not need.
                from ottla.spark.schemas.protobuf_decoder import message_descriptor, message_type

                self._reader = message_descriptor(reader, message)
                value_type = message_type(self._reader, ())
            case _:
                raise UnreadableSchema(f"schemas of the type {reader.type} are not read")
        self.value_type: Final = value_type
        self.type: Final = pa.struct([("value", value_type), ("error", pa.string()), ("schema_id", pa.int32())])
        self._decoders: dict[int, SchemaDecoder] = {}
        # Why a schema is not read, by its id.
        self._unreadable: dict[int, str] = {}

    def decode(self, column: pa.Array) -> pa.StructArray:
        """A column of `type` from one of bytes.  Raises `RegistryUnreachable`.

        At most `UNKNOWN_IDS_OF_BATCH_MAX` ids that the registry does not know are requested.
        """
        wire = split(column)
        errors: list[str | None] | None = None
        if wire.is_foreign.any():
            errors = [_FOREIGN if foreign else None for foreign in wire.is_foreign]
        rows, parts = [], []
        is_ours = ~wire.is_null & ~wire.is_foreign
        ids_found, counts = np.unique(wire.ids[is_ours], return_counts=True)
        unknown_count = 0
        # Those of most rows first: they are always requested.
        for schema_id in ids_found[np.argsort(-counts, kind="stable")]:
            chosen = np.flatnonzero(is_ours & (wire.ids == schema_id))
            try:
                if unknown_count >= UNKNOWN_IDS_OF_BATCH_MAX and int(schema_id) not in self._decoders:
                    raise UnknownSchema(_NOT_ASKED)
                part = self._decoded(int(schema_id), wire, chosen)
            except UnknownSchema as error:
                unknown_count += 1
                part = self._unread(chosen, error_text(error))
            rows.append(chosen)
            parts.append(part.column)
            if part.errors is not None:
                errors = errors or [None] * len(column)
                for row, why in zip(chosen.tolist(), part.errors, strict=True):
                    errors[row] = why
        value = _in_place(rows, parts, len(column), self.value_type)
        error_column = pa.nulls(len(column), pa.string()) if errors is None else pa.array(errors, pa.string())
        ids = pa.array(wire.ids.astype(np.uint32).view(np.int32), mask=~is_ours)
        whole_null = pa.array(wire.is_null) if wire.is_null.any() else None
        return pa.StructArray.from_arrays([value, error_column, ids], fields=list(self.type), mask=whole_null)

    def _decoded(self, schema_id: int, wire: WireColumn, rows: Ints) -> DecodedRows:
        """Raises `UnknownSchema`."""
        if schema_id in self._unreadable:
            return self._unread(rows, self._unreadable[schema_id])
        decoder = self._decoders.get(schema_id)
        if decoder is None:
            writer = self._registry.by_id(schema_id)
            try:
                decoder = self._decoders[schema_id] = self._decoder(writer)
            except Exception as error:  # noqa: BLE001 (a schema that no library of ours reads is its records' error)
                self._unreadable[schema_id] = error_text(error)
                return self._unread(rows, self._unreadable[schema_id])
        return decoder.decode(wire.data, wire.starts[rows], wire.ends[rows])

    def _unread(self, rows: Ints, error: str) -> DecodedRows:
        return DecodedRows(pa.nulls(len(rows), self.value_type), [error] * len(rows))

    def _decoder(self, writer: FoundSchema) -> SchemaDecoder:
        if writer.type != self._kind:
            raise UnreadableSchema(f"a schema of {writer.type}, and {self._kind} is read")
        if writer.type == JSON:
            return _JsonText()
        if writer.type == PROTOBUF:
            from ottla.spark.schemas.protobuf_decoder import ProtobufDecoder

            return ProtobufDecoder(writer, self._reader)
        return AvroDecoder(resolved(writer), self._reader)


# So the errors of rows begin whose schema the registry does not have; it may get it later.
UNKNOWN_SCHEMA: Final = f"{UnknownSchema.__name__}: "
_FOREIGN: Final = "not in the wire format of a registry: it has no byte 0 and schema id before it"
_NOT_ASKED: Final = (
    f"the registry was not asked for this schema: it did not know {UNKNOWN_IDS_OF_BATCH_MAX} others of this batch"
)


class _JsonText:
    """JSON as it is: Spark reads it itself."""

    type = pa.string()

    def decode(self, data: Octets, starts: Ints, ends: Ints) -> DecodedRows:
        payloads = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=True)]
        return rows_as_column(payloads, bytes.decode, self.type, self.type)


def _in_place(rows: list[Ints], parts: list[pa.Array], count: int, value_type: pa.DataType) -> pa.Array:
    """The parts' values at their rows; null elsewhere."""
    if len(parts) == 1 and len(rows[0]) == count:
        return parts[0]
    if not parts:
        return pa.nulls(count, value_type)
    places = np.full(count, -1, np.int64)
    taken = np.concatenate(rows)
    places[taken] = np.arange(len(taken))
    return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))


def registry_column(
    column: Column | str,
    registry: str,
    *,
    subject: str | None,
    schema: str | None,
    message: str | None,
    security: RegistrySecurity,
) -> Column:
    INSTALLED.require(
        SparkFeature.ARROW_FUNCTIONS, "from_registry", "decode the values in a load, or with mapInArrow and fastavro"
    )
    if (subject is None) == (schema is None):
        raise ConfigError(
            "from_registry needs the reader's schema", hint="give a subject (its latest version is read), or a schema"
        )
    reader = (
        FoundSchema(_type_of(schema), schema)
        if schema is not None
        else shared_reader(registry, security).latest(subject or "")
    )
    return_type: Any = from_arrow_type(shared_decoder(registry, security, *plain(reader), message).type)
    arguments = (registry, security, *plain(reader), message)

    def decode(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = shared_decoder(*arguments)
        for each in columns:
            yield decoder.decode(each)

    # Arrow functions are known by their hints, and here these are only text.
    decode.__annotations__ = {"columns": Iterator[pa.Array], "return": Iterator[pa.Array]}
    made: Any = functions.arrow_udf(decode, returnType=return_type)  # type: ignore[attr-defined]  # made at import
    found: Column = made(functions.col(column) if isinstance(column, str) else column)
    return found


@lru_cache(maxsize=32)
def shared_decoder(
    registry: str,
    security: RegistrySecurity,
    kind: str,
    text: str,
    referenced: tuple[tuple[str, str], ...],
    message: str | None,
) -> RegistryDecoder:
    """One for each reader's schema in a process: the tasks of a worker share what it has learnt."""
    return RegistryDecoder(shared_reader(registry, security), FoundSchema(kind, text, dict(referenced)), message)


def plain(found: FoundSchema) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """A schema as arguments of `shared_decoder`, which can be hashed and pickled."""
    return found.type, found.text, tuple(found.referenced.items())


def _type_of(schema: str) -> str:
    """Avro is JSON, or the name of a primitive type; Protobuf is neither."""
    text = schema.strip()
    return "PROTOBUF" if text.startswith(("syntax", "edition", "package", "import", "message", "//", "/*")) else "AVRO"

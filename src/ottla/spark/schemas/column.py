"""`from_registry` as a column of Spark: an Arrow function of Python's workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.pandas.types import from_arrow_type

from ottla.model.errors import ConfigError
from ottla.spark.schemas.registry_decoder import RegistryDecoder
from ottla.spark.schemas.registry_reader import FoundSchema, shared_reader


def registry_column(
    column: Column | str, registry: str, *, subject: str | None, schema: str | None, message: str | None
) -> Column:
    if (subject is None) == (schema is None):
        raise ConfigError(
            "from_registry needs the reader's schema", hint="give a subject (its latest version is read), or a schema"
        )
    reader = (
        FoundSchema(_type_of(schema), schema) if schema is not None else shared_reader(registry).latest(subject or "")
    )
    return_type: Any = from_arrow_type(_decoder(registry, *_plain(reader), message).type)
    arguments = (registry, *_plain(reader), message)

    def decode(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        decoder = _decoder(*arguments)
        for each in columns:
            yield decoder.decode(each)

    # Arrow functions are known by their hints, and here these are only text.
    decode.__annotations__ = {"columns": Iterator[pa.Array], "return": Iterator[pa.Array]}
    made: Any = functions.arrow_udf(decode, returnType=return_type)  # type: ignore[attr-defined]  # made at import
    found: Column = made(functions.col(column) if isinstance(column, str) else column)
    return found


@lru_cache(maxsize=32)
def _decoder(
    registry: str, kind: str, text: str, referenced: tuple[tuple[str, str], ...], message: str | None
) -> RegistryDecoder:
    """One for each reader's schema in a process: the tasks of a worker share what it has learnt."""
    return RegistryDecoder(shared_reader(registry), FoundSchema(kind, text, dict(referenced)), message)


def _plain(found: FoundSchema) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return found.type, found.text, tuple(found.referenced.items())


def _type_of(schema: str) -> str:
    """Avro is JSON, or the name of a primitive type; Protobuf is neither."""
    text = schema.strip()
    return "PROTOBUF" if text.startswith(("syntax", "edition", "package", "import", "message", "//", "/*")) else "AVRO"

"""The types of schemas: the answers of checks.  It runs where it may be ended (check_process.py)."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for

from ottla.registry.avro_format import AvroSchema, problems_of_reader, read_avro
from ottla.registry.checks import Answer, Check, Comparison, Descriptor, KeptForm, Source
from ottla.registry.errors import invalid_schema
from ottla.registry.protobuf_format import read_protobuf, serialized
from ottla.registry.schema import SchemaType

# A subject's newest version is compared with one schema after the other.
_AVRO_KEPT: Final = 32


def answer(check: Check) -> Answer:
    """Raises `RegistryError` for an invalid schema."""
    match check:
        case KeptForm(source, normalize):
            return _kept(source, normalize=normalize)
        case Comparison(reader, writer):
            return problems_of_reader(_avro(reader), _avro(writer))
        case Descriptor(source):
            return serialized(source.text, dict(source.referenced))


def _kept(source: Source, *, normalize: bool) -> str:
    match source.type:
        case SchemaType.AVRO:
            return read_avro(source.text, [text for _, text in source.referenced], normalize=normalize).text
        case SchemaType.JSON:
            return read_json_schema(source.text, normalize=normalize)
        case SchemaType.PROTOBUF:
            return read_protobuf(source.text, dict(source.referenced))


@lru_cache(maxsize=_AVRO_KEPT)
def _avro(source: Source) -> AvroSchema:
    return read_avro(source.text, [text for _, text in source.referenced])


def read_json_schema(text: str, *, normalize: bool = False) -> str:
    """Its text as it is kept, in one line.  Raises `RegistryError`."""
    try:
        schema: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_schema(f"a JSON Schema is JSON, and this is not: {error}") from None
    if not isinstance(schema, dict | bool):
        raise invalid_schema("a JSON Schema is an object, or true or false")
    try:
        validator_for(schema, Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        raise invalid_schema(f"no JSON Schema: {error.json_path}: {error.message}") from None
    except RecursionError:
        raise invalid_schema("no JSON Schema: it is nested too deeply") from None
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)

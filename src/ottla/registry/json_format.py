"""JSON Schema: schemas are read and checked against their own draft."""

from __future__ import annotations

import json
from typing import Any

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for

from ottla.registry.errors import invalid_schema


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

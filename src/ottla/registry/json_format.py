"""JSON Schema: schemas are read and checked against their draft; references resolve as `referencing` does it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012, specification_with

from ottla.registry.errors import invalid_schema

Json = Any

# The drafts in which the keywords beside a `$ref` have no meaning.
_REF_ALONE: Final = re.compile(r"json-schema\.org/draft-0[3467]/")


@dataclass(frozen=True)
class JsonNode:
    """A schema and the base of the references in it."""

    schema: Json
    resolver: Any
    # Whether the keywords beside a `$ref` have no meaning.
    has_ref_alone: bool

    def child(self, schema: Json) -> JsonNode:
        """A schema within this one; its own `$id` is the base of its references."""
        if isinstance(schema, Mapping) and ("$id" in schema or "id" in schema):
            resolver = self.resolver.in_subresource(_resource(schema))
            return JsonNode(schema, resolver, self.has_ref_alone)
        return JsonNode(schema, self.resolver, self.has_ref_alone)


def read_json_schema(text: str, *, normalize: bool = False) -> str:
    """Its text as it is kept, in one line.  Raises `RegistryError`."""
    schema = _loaded(text)
    if not isinstance(schema, dict | bool):
        raise invalid_schema("a JSON Schema is an object, or true or false")
    try:
        validator_for(schema, Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        raise invalid_schema(f"no JSON Schema: {error.json_path}: {error.message}") from None
    except RecursionError:
        raise invalid_schema("no JSON Schema: it is nested too deeply") from None
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False, sort_keys=normalize)


def json_root(text: str, referenced: Iterable[tuple[str, str]]) -> JsonNode:
    """`referenced`: name and text of each schema that it refers to, in one or several steps.

    Raises `RegistryError`.
    """
    documents = ((name, _resource(_loaded(other))) for name, other in referenced)
    registry: Registry[Json] = Registry().with_resources(documents)
    resource = _resource(_loaded(text))
    dialect = resource.contents.get("$schema") if isinstance(resource.contents, Mapping) else None
    has_ref_alone = isinstance(dialect, str) and _REF_ALONE.search(dialect) is not None
    return JsonNode(resource.contents, registry.resolver_with_root(resource), has_ref_alone)


def _resource(schema: Json) -> Resource[Json]:
    dialect = schema.get("$schema") if isinstance(schema, Mapping) else None
    named = specification_with(dialect, default=DRAFT202012) if isinstance(dialect, str) else DRAFT202012
    return named.create_resource(schema)


def _loaded(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_schema(f"a JSON Schema is JSON, and this is not: {error}") from None

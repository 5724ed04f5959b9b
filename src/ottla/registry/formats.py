"""The types of schemas: the answers of checks.  It runs where it may be ended (check_process.py)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ottla.registry.avro_format import AvroSchema, problems_of_reader, read_avro
from ottla.registry.checks import Answer, Check, Comparison, Descriptor, KeptForm, Source
from ottla.registry.json_format import read_json_schema
from ottla.registry.protobuf_format import read_protobuf, serialized
from ottla.registry.schema import SchemaType

# A subject's newest version is compared with one schema after the other.
_AVRO_KEPT: Final = 32


def answer(check: Check) -> Answer:
    """Raises `RegistryError`: what was sent is no schema."""
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

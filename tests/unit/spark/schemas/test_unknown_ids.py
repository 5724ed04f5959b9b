from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from ottla.spark.schemas import registry_decoder, registry_reader
from ottla.spark.schemas.registry_decoder import RegistryDecoder
from ottla.spark.schemas.registry_reader import FoundSchema, RegistryReader, UnknownSchema
from ottla.testing.fake_clock import FakeClock

TEXT = FoundSchema("JSON", "{}")


class Registry:
    """Knows some schemas, and what it was asked for."""

    def __init__(self, **known: FoundSchema) -> None:
        self.known = {int(name.removeprefix("id")): found for name, found in known.items()}
        self.asked: list[int] = []

    def by_id(self, schema_id: int) -> FoundSchema:
        self.asked.append(schema_id)
        if schema_id not in self.known:
            raise UnknownSchema(f"no {schema_id}")
        return self.known[schema_id]


def column(*ids: int) -> pa.Array:
    return pa.array([b"\0" + each.to_bytes(4, "big") + b"{}" for each in ids], pa.binary())


def test_batch_of_foreign_data_asks_for_few_ids_and_those_of_most_rows_first() -> None:
    registry = Registry(id900=TEXT)
    decoded = RegistryDecoder(registry, TEXT).decode(column(*range(500), 900, 900)).to_pylist()
    assert registry.asked[0] == 900
    assert len(registry.asked) == 1 + registry_decoder.UNKNOWN_IDS_OF_BATCH_MAX
    assert [row["value"] for row in decoded[500:]] == ["{}", "{}"]
    assert all(row["error"] and row["value"] is None for row in decoded[:500])


def test_known_ids_are_read_beside_unknown_ones() -> None:
    registry = Registry(id900=TEXT)
    decoder = RegistryDecoder(registry, TEXT)
    decoder.decode(column(900))
    assert decoder.decode(column(*range(500), 900)).to_pylist()[500]["value"] == "{}"


def test_schema_that_cannot_be_read_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = RegistryDecoder(Registry(id7=FoundSchema("AVRO", '"int"')), TEXT)
    built: list[FoundSchema] = []
    build = decoder._decoder

    def counted(writer: FoundSchema) -> Any:
        built.append(writer)
        return build(writer)

    monkeypatch.setattr(decoder, "_decoder", counted)
    first, second = (decoder.decode(column(7)).to_pylist() for _ in range(2))
    assert first == second
    assert "AVRO" in first[0]["error"]
    assert len(built) == 1


def test_unknown_id_is_requested_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = FakeClock(), 0
    known: dict[str, Mapping[str, Any]] = {}

    def get(_: RegistryReader, path: str) -> Mapping[str, Any]:
        nonlocal asked
        asked += 1
        if path not in known:
            raise UnknownSchema(path)
        return known[path]

    monkeypatch.setattr(RegistryReader, "_get", get)
    reader = RegistryReader("http://here", clock=clock)
    for _ in range(3):
        with pytest.raises(UnknownSchema):
            reader.by_id(1)
    assert asked == 1
    known["/schemas/ids/1"] = {"schema": json.dumps("int")}
    clock.advance(registry_reader.UNKNOWN_FOR_MS)
    assert reader.by_id(1).text == '"int"'

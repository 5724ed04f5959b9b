"""Records in the wire format become columns: by columns and row by row alike, and a bad one costs only itself."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from ottla.spark.schemas.avro_decoder import AvroDecoder, NotByColumns, column_reader, resolved
from ottla.spark.schemas.registry_decoder import RegistryDecoder, split
from ottla.spark.schemas.registry_reader import FoundSchema, UnknownSchema, UnreadableSchema

Json = Any

ORDER: Final = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


class Registry:
    def __init__(self, **schemas: FoundSchema) -> None:
        self._schemas = {int(name.removeprefix("id")): found for name, found in schemas.items()}
        self.asked: list[int] = []

    def by_id(self, schema_id: int) -> FoundSchema:
        self.asked.append(schema_id)
        if schema_id not in self._schemas:
            raise UnknownSchema(f"no schema {schema_id}")
        return self._schemas[schema_id]


def avro(schema: Json, **referenced: str) -> FoundSchema:
    return FoundSchema("AVRO", json.dumps(schema), referenced)


def wire(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def written(schema: Json, value: Json) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decoded(writer: Json, reader: Json, values: Sequence[Json]) -> list[Json]:
    registry = Registry(id1=avro(writer))
    column = pa.array([wire(1, written(writer, value)) for value in values], pa.binary())
    rows = RegistryDecoder(registry, avro(reader)).decode(column).to_pylist()
    assert [row["error"] for row in rows] == [None] * len(values)
    return [row["value"] for row in rows]


def test_rows_come_back_as_they_were_written() -> None:
    orders = [{"id": "7", "cents": 250, "note": None}, {"id": "é" * 100, "cents": -(2**62), "note": ""}]
    assert decoded(ORDER, ORDER, orders) == orders


def test_versions_are_read_side_by_side_into_the_readers_columns() -> None:
    older = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    registry = Registry(id1=avro(older), id2=avro(ORDER))
    newer = {**ORDER, "fields": [*ORDER["fields"][:1], {"name": "cents", "type": "long", "default": 5}]}
    values = [
        wire(2, written(ORDER, {"id": "b", "cents": 1, "note": "x"})),
        None,
        wire(1, written(older, {"id": "a"})),
        wire(2, written(ORDER, {"id": "c", "cents": 2, "note": None})),
    ]
    decoder = RegistryDecoder(registry, avro(newer))
    rows = decoder.decode(pa.array(values, pa.binary())).to_pylist()
    assert rows == [
        {"value": {"id": "b", "cents": 1}, "error": None, "schema_id": 2},
        None,
        {"value": {"id": "a", "cents": 5}, "error": None, "schema_id": 1},
        {"value": {"id": "c", "cents": 2}, "error": None, "schema_id": 2},
    ]
    decoder.decode(pa.array(values, pa.binary()))
    assert sorted(registry.asked) == [1, 2], "each schema once"


def test_column_that_is_a_slice_of_another_is_read_in_its_place() -> None:
    values = [wire(1, written(ORDER, {"id": str(number), "cents": number, "note": None})) for number in range(10)]
    column = pa.array([b"", *values, None], pa.binary()).slice(3, 4)
    rows = RegistryDecoder(Registry(id1=avro(ORDER)), avro(ORDER)).decode(column).to_pylist()
    assert [row["value"]["cents"] for row in rows] == [2, 3, 4, 5]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.string()])
def test_other_columns_of_bytes_are_read_too(kind: pa.DataType) -> None:
    column = pa.array([wire(1, written(ORDER, {"id": "7", "cents": 1, "note": None}))], pa.binary()).cast(kind)
    [row] = RegistryDecoder(Registry(id1=avro(ORDER)), avro(ORDER)).decode(column).to_pylist()
    assert row["value"]["id"] == "7"


def test_bad_records_have_reasons_and_the_others_their_values() -> None:
    good = written(ORDER, {"id": "7", "cents": 1, "note": None})
    values = [
        wire(1, good),
        wire(1, good[:-1]),
        wire(1, b""),
        wire(1, b"\xff" * 20),
        wire(1, written("bytes", b"\xff\xfe") + b"\x02\x00"),
        wire(9, good),
        b"",
        b"\0\0\0",
        b"\1" + good,
        b'{"id": 7}',
        wire(1, good),
    ]
    rows = RegistryDecoder(Registry(id1=avro(ORDER)), avro(ORDER)).decode(pa.array(values, pa.binary())).to_pylist()
    assert [row["value"] is not None for row in rows] == [True, *[False] * 9, True]
    assert [row["error"] is None for row in rows] == [True, *[False] * 9, True]
    assert "no schema 9" in rows[5]["error"]
    assert [row["schema_id"] for row in rows] == [1, 1, 1, 1, 1, 9, None, None, None, None, 1]
    assert all("wire format" in row["error"] for row in rows[6:10])


def test_nothing_is_a_column_too() -> None:
    decoder = RegistryDecoder(Registry(), avro(ORDER))
    assert decoder.decode(pa.array([], pa.binary())).type == decoder.type
    assert decoder.decode(pa.array([None, None], pa.binary())).to_pylist() == [None, None]


def test_times_dates_and_decimals_are_columns_of_their_own() -> None:
    schema = {
        "type": "record",
        "name": "T",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "exact", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        ],
    }
    noon = datetime(2026, 6, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    value: dict[str, Json] = {"at": noon, "exact": noon, "day": date(1969, 12, 31), "local": noon.replace(tzinfo=None)}
    assert decoded(schema, schema, [value]) == [value]
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    with_price = {**schema, "fields": [*schema["fields"], {"name": "price", "type": price}]}
    value["price"] = Decimal("-12.34")
    assert decoded(with_price, with_price, [value]) == [value]


def test_lists_maps_and_records_within_are_read() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
            {
                "name": "inner",
                "type": ["null", {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}],
            },
            {"name": "again", "type": {"type": "array", "items": "I"}},
        ],
    }
    values = [
        {"tags": ["a", "b"], "counts": {"c": 1, "d": None}, "inner": {"x": 5}, "again": [{"x": 6}]},
        {"tags": [], "counts": {}, "inner": None, "again": []},
    ]
    found = decoded(schema, schema, values)
    assert [{**row, "counts": dict(row["counts"])} for row in found] == values


@pytest.mark.parametrize(
    ("writer", "reader", "values", "expected"),
    [
        ("int", "long", [1, -1], [1, -1]),
        ("int", "double", [3], [3.0]),
        ("long", "float", [2**53 + 1], [float(2**53)]),
        ("float", "double", [1.5], [1.5]),
        ("string", "bytes", ["é"], ["é".encode()]),
        ("bytes", "string", ["é".encode()], ["é"]),
        ("string", ["null", "string"], ["a"], ["a"]),
        (["null", "string"], ["string", "null"], [None, "a"], [None, "a"]),
    ],
)
def test_wider_types_are_read_from_narrower_ones(
    writer: Json, reader: Json, values: list[Json], expected: list[Json]
) -> None:
    def of(kind: Json) -> Json:
        return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}

    found = decoded(of(writer), of(reader), [{"f": value} for value in values])
    assert [row["f"] for row in found] == expected


def test_reader_without_a_default_gets_the_reason() -> None:
    reader = {**ORDER, "fields": [*ORDER["fields"], {"name": "must", "type": "string"}]}
    column = pa.array([wire(1, written(ORDER, {"id": "7", "cents": 1, "note": None}))], pa.binary())
    [row] = RegistryDecoder(Registry(id1=avro(ORDER)), avro(reader)).decode(column).to_pylist()
    assert row["value"] is None
    assert "must" in row["error"]


def test_references_are_resolved() -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    priced = {"type": "record", "name": "shop.Priced", "fields": [{"name": "price", "type": "Money"}]}
    found = FoundSchema("AVRO", json.dumps(priced), {"shop.Money": json.dumps(money)})
    whole = {**priced, "fields": [{"name": "price", "type": money}]}
    column = pa.array([wire(1, written(whole, {"price": {"cents": 5}}))], pa.binary())
    [row] = RegistryDecoder(Registry(id1=found), found).decode(column).to_pylist()
    assert row["value"] == {"price": {"cents": 5}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}, "refers to itself"),
        ({"type": "record", "name": "R", "fields": [{"name": "f", "type": ["int", "string"]}]}, "a union of"),
        ({"type": "record", "name": "R", "fields": [{"name": "f", "type": "Unknown"}]}, "not defined"),
    ],
)
def test_schema_without_columns_is_refused_for_the_reader_and_an_error_for_the_writer(
    schema: Json, reason: str
) -> None:
    with pytest.raises(UnreadableSchema, match=reason):
        RegistryDecoder(Registry(), avro(schema))


class Values:
    """Schemas that are read by columns, and values of them, at random."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0

    def record(self, depth: int = 0) -> Json:
        self._count += 1
        name = f"R{self._count}"
        count = self._chance.randrange(1, 6)
        return {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{index}", "type": self._kind(depth + 1)} for index in range(count)],
        }

    def _kind(self, depth: int) -> Json:
        kind = self._chance.choice(
            ["boolean", "int", "long", "float", "double", "string", "bytes", "optional", "enum", "fixed", "record"]
        )
        self._count += 1
        if kind == "optional":
            inner = self._kind(depth + 1)
            return inner if isinstance(inner, list) else self._chance.choice([["null", inner], [inner, "null"]])
        if kind == "enum":
            return {"type": "enum", "name": f"E{self._count}", "symbols": ["A", "B", "C"]}
        if kind == "fixed":
            return {"type": "fixed", "name": f"F{self._count}", "size": 3}
        if kind == "record":
            return self.record(depth) if depth < 3 else "int"
        return kind

    def value(self, schema: Json) -> Json:
        chance = self._chance
        if isinstance(schema, list):
            return None if chance.random() < 0.4 else self.value(next(each for each in schema if each != "null"))
        match schema if isinstance(schema, str) else schema["type"]:
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.choice([0, -1, 63, 64, 2**31 - 1, -(2**31), chance.randrange(10**6)])
            case "long":
                return chance.choice([0, -1, 2**63 - 1, -(2**63), chance.randrange(10**12)])
            case "float":
                return chance.choice([0.0, -1.5, 2.0**100])
            case "double":
                return chance.random()
            case "string":
                return "é" * chance.choice([0, 1, 40, 100])
            case "bytes":
                return chance.randbytes(chance.choice([0, 1, 200]))
            case "enum":
                return chance.choice(schema["symbols"])
            case "fixed":
                return chance.randbytes(schema["size"])
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}


@pytest.mark.parametrize("seed", range(60))
def test_columns_are_what_a_row_decoder_reads(seed: int) -> None:
    made = Values(random.Random(seed))
    schema = made.record()
    column_reader(resolved(avro(schema)))
    values = [made.value(schema) for _ in range(50)]
    assert decoded(schema, schema, values) == values


@pytest.mark.parametrize("seed", range(60))
def test_damaged_records_never_harm_their_neighbours(seed: int) -> None:
    chance = random.Random(seed)
    made = Values(chance)
    schema = made.record()
    values = [made.value(schema) for _ in range(30)]
    payloads = [written(schema, value) for value in values]
    damaged = set(chance.sample(range(30), 5))
    for row in damaged:
        data = bytearray(payloads[row])
        for _ in range(3):
            match chance.randrange(3):
                case 0 if data:
                    data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 128, 255])
                case 1:
                    del data[chance.randrange(len(data) + 1) :]
                case 2:
                    data[0:0] = b"\xff" * chance.randrange(12)
        payloads[row] = bytes(data)
    column = pa.array([wire(1, payload) for payload in payloads], pa.binary())
    rows = RegistryDecoder(Registry(id1=avro(schema)), avro(schema)).decode(column).to_pylist()
    for row, value in enumerate(values):
        if row not in damaged:
            assert rows[row] == {"value": value, "error": None, "schema_id": 1}
        else:
            assert (rows[row]["error"] is None) or rows[row]["value"] is None


def test_fields_that_need_rows_are_not_read_by_columns() -> None:
    for kind in ({"type": "array", "items": {"type": "int"}}, [{"type": "int"}, {"type": "string"}]):
        with pytest.raises(NotByColumns):
            column_reader({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})


def test_batch_of_good_rows_is_not_read_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = resolved(avro(ORDER))
    decoder = AvroDecoder(schema, schema)
    monkeypatch.setattr("ottla.spark.schemas.avro_decoder.rows_as_column", None)
    column = pa.array([wire(1, written(ORDER, {"id": "7", "cents": 1, "note": "n"}))] * 100, pa.binary())
    found = split(column)
    assert decoder.decode(found.data, found.starts, found.ends).column.to_pylist()[99]["note"] == "n"


def test_json_is_its_text() -> None:
    schema = FoundSchema("JSON", '{"type":"object"}')
    column = pa.array([wire(1, b'{"a": 1}'), wire(1, b"\xff")], pa.binary())
    rows = RegistryDecoder(Registry(id1=schema), schema).decode(column).to_pylist()
    assert rows[0]["value"] == '{"a": 1}'
    assert "utf-8" in rows[1]["error"]


@pytest.mark.parametrize("text", ["{", "7", '{"type":"record","name":"R"}', '{"type":"enum","name":"E","symbols":[1]}'])
def test_writers_schema_that_cannot_be_read_is_the_error_of_its_records(text: str) -> None:
    good = wire(2, written(ORDER, {"id": "7", "cents": 1, "note": None}))
    registry = Registry(id1=FoundSchema("AVRO", text), id2=avro(ORDER))
    rows = RegistryDecoder(registry, avro(ORDER)).decode(pa.array([wire(1, b"x"), good], pa.binary())).to_pylist()
    assert rows[0]["error"]
    assert rows[1]["error"] is None


def test_record_of_another_kind_of_schema_has_an_error() -> None:
    column = pa.array([wire(1, b'{"a": 1}')], pa.binary())
    decoder = RegistryDecoder(Registry(id1=FoundSchema("JSON", "{}")), avro(ORDER))
    [row] = decoder.decode(column).to_pylist()
    assert "a schema of JSON, and AVRO is read" in row["error"]

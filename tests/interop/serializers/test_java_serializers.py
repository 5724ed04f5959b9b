"""Java's Avro serializer works with the registry, and the registry's Avro rules equal those of Java's library."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.registry.avro_format import problems_of_reader, read_avro
from ottla.registry.errors import RegistryError
from ottla.testing import ControlledBroker
from tests.interop.serializers.java_serializers import JavaSerializers
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import KafkaUnavailable
from tests.peers.unavailable import PeerUnavailable

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + 600)]

ORDER = (
    '{"type":"record","name":"Order","namespace":"shop","doc":"paid or not","fields":[{"name":"id","type":"string"},'
    '{"name":"cents","type":["null","long"],"default":null}]}'
)


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    with ControlledBroker({"schema.registry.listeners": "http://127.0.0.1:0"}) as broker:
        yield broker.schema_registry_url


@pytest.fixture(scope="module")
def java(registry_url: str) -> Iterator[JavaSerializers]:
    try:
        running = JavaSerializers(registry_url)
    except (PeerUnavailable, KafkaUnavailable) as reason:
        pytest.skip(str(reason))
    with running:
        yield running


def test_records_of_javas_serializer_are_read_by_pythons_and_the_reverse(
    java: JavaSerializers, registry_url: str
) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    with SchemaRegistryClient({"url": registry_url}) as client:
        data = base64.b64decode(java.ask("serialize", "orders", ORDER, '{"id":"7","cents":{"long":250}}'))
        assert AvroDeserializer(client)(data, context) == {"id": "7", "cents": 250}
        # The same schema, with other spaces and another order of keys.
        other = json.dumps(dict(reversed(json.loads(ORDER).items())), indent=1)
        mine = AvroSerializer(client, other)({"id": "8", "cents": None}, context)
        assert mine[:5] == data[:5]
        assert client.get_versions("orders-value") == [1]
        told = java.ask("deserialize", "orders", base64.b64encode(mine).decode())
        assert json.loads(told) == {"id": "8", "cents": None}


def test_schema_that_java_may_not_register_is_refused_with_the_reason(java: JavaSerializers) -> None:
    java.ask("serialize", "refused", ORDER, '{"id":"7","cents":null}')
    worse = ORDER.replace('{"name":"id"', '{"name":"currency","type":"string"},{"name":"id"')
    with pytest.raises(RuntimeError, match=r"READER_FIELD_MISSING_DEFAULT_VALUE.*40901"):
        java.ask("serialize", "refused", worse, '{"currency":"x","id":"7","cents":null}')


class Schemas:
    """Schemas at random; two of one seed are often alike."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0

    def any(self, depth: int = 0) -> Any:
        kinds = ["primitive"] * 3 + (
            [] if depth > 2 else ["record", "record", "array", "map", "union", "enum", "fixed"]
        )
        kind = self._chance.choice(kinds)
        self._count += 1
        # Few names, so that two schemas share some.
        name, space = f"N{self._count}", self._chance.choice(["", "a", "a.b"])
        match kind:
            case "record":
                fields = [self._field(f"f{index}", depth) for index in range(self._chance.randrange(4))]
                return self._named({"type": "record", "name": name, "namespace": space, "fields": fields})
            case "array":
                return {"type": "array", "items": self.any(depth + 1)}
            case "map":
                return {"type": "map", "values": self.any(depth + 1)}
            case "enum":
                symbols = self._chance.sample(["A", "B", "C"], self._chance.randrange(1, 4))
                made: dict[str, Any] = {"type": "enum", "name": name, "symbols": symbols}
                if self._chance.random() < 0.3:
                    made["default"] = symbols[0]
                return self._named(made)
            case "fixed":
                return self._named({"type": "fixed", "name": name, "size": self._chance.choice([4, 8])})
            case "union":
                return self._chance.sample(["null", "int", "long", "string", "double"], self._chance.randrange(1, 4))
        plain = self._chance.choice(["int", "long", "float", "double", "string", "bytes", "boolean"])
        if plain == "long" and self._chance.random() < 0.3:
            return {"type": "long", "logicalType": "timestamp-millis", "owner": "x"}
        return plain

    def _named(self, made: dict[str, Any]) -> dict[str, Any]:
        if self._chance.random() < 0.3:
            made["aliases"] = [f"N{self._count + 1}", "a.Old"]
        if self._chance.random() < 0.2:
            made["doc"] = "d"
        return made

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": self.any(depth + 1)}
        if made["type"] == "int" and self._chance.random() < 0.5:
            made["default"] = 0
        if self._chance.random() < 0.2:
            made["aliases"] = [f"{name}_old"]
        return made


@pytest.mark.parametrize("seed", range(10))
def test_schema_is_stored_with_the_same_text_as_in_confluents_registry(java: JavaSerializers, seed: int) -> None:
    compared = 0
    for number in range(40):
        text = json.dumps(Schemas(random.Random(1000 * seed + number)).any())
        try:
            mine = read_avro(text).text
        except RegistryError:
            with pytest.raises(RuntimeError):
                java.ask("canonical", text)
            continue
        assert mine == java.ask("canonical", text)
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("seed", range(10))
def test_reader_schemas_are_compatible_when_javas_library_reads_them(java: JavaSerializers, seed: int) -> None:
    seen = {"true": 0, "false": 0}
    for number in range(60):
        chance = random.Random(1000 * seed + number)
        state = chance.getstate()
        first = Schemas(chance).any()
        if chance.random() < 0.7:
            # Equal up to a random point.
            chance.setstate(state)
            second = changed(Schemas(chance).any(), random.Random(number))
        else:
            second = Schemas(chance).any()
        reader, writer = json.dumps(first), json.dumps(second)
        try:
            mine = not problems_of_reader(read_avro(reader), read_avro(writer))
        except RegistryError:
            continue
        theirs = java.ask("reads", reader, writer)
        assert str(mine).lower() == theirs, (reader, writer)
        seen[theirs] += 1
    assert min(seen.values()) > 3


def changed(schema: Any, chance: random.Random) -> Any:
    """With a few differences, relevant and irrelevant ones."""
    if isinstance(schema, str):
        return chance.choice(["int", "long", "string", "double", schema, schema, schema, schema, schema, schema])
    if isinstance(schema, list):
        return [each for each in schema if chance.random() < 0.8] or schema
    made = dict(schema)
    for inner in ("items", "values"):
        if inner in made:
            made[inner] = changed(made[inner], chance)
    if "fields" in made:
        kept = [field for field in made["fields"] if chance.random() < 0.9]
        made["fields"] = [{**field, "type": changed(field["type"], chance)} for field in kept]
        for field in made["fields"]:
            field.pop("default", None)
        if chance.random() < 0.2:
            made["fields"].append({"name": "added", "type": "string"})
    if chance.random() < 0.1 and "name" in made:
        made["name"] = "Old"
    return made

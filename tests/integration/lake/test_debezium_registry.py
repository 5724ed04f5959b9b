"""Events of Debezium in Avro, with their schemas in a registry; without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.spark.errors import LakeError
from ottla.spark.lake import debezium_registry
from ottla.spark.lake.changes import NO_CHANGE
from ottla.testing import ControlledBroker

TOPIC = "shop.public.orders"
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "euro", "type": ["null", "double"], "default": None}],
}
# The second row refers to the first by its name, as a connector's schema does.
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "namespace": TOPIC, "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with ControlledBroker({"schema.registry.listeners": "http://127.0.0.1:0"}) as running:
        yield running.schema_registry_url


@pytest.fixture(scope="module")
def records(registry: str) -> pa.RecordBatch:
    """A snapshot's row, an update, a deletion and its tombstone."""
    with SchemaRegistryClient({"url": registry}) as client:
        value_of, key_of = AvroSerializer(client, json.dumps(ENVELOPE)), AvroSerializer(client, json.dumps(KEY))
        value, key = (SerializationContext(TOPIC, part) for part in (MessageField.VALUE, MessageField.KEY))

        def event(op: str, lsn: int, before: Any, after: Any) -> bytes:
            found: bytes = value_of({"op": op, "source": {"lsn": lsn}, "before": before, "after": after}, value)
            return found

        events = [
            (1, event("r", 50, None, {"id": 1, "euro": 10.0})),
            (1, event("u", 60, {"id": 1, "euro": 10.0}, {"id": 1, "euro": None})),
            (2, event("d", 70, {"id": 2, "euro": None}, None)),
            (2, None),
        ]
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.array([key_of({"id": each}, key) for each, _ in events], pa.binary()),
                "value": pa.array([each for _, each in events], pa.binary()),
                "topic": [TOPIC] * len(events),
                "partition": pa.array([0] * len(events), pa.int32()),
                "offset": pa.array(range(len(events)), pa.int64()),
            }
        )


def test_rows_have_the_columns_of_the_registrys_schemas(registry: str, records: pa.RecordBatch) -> None:
    decode = pickle.loads(pickle.dumps(debezium_registry(registry, TOPIC, source=["lsn"])))
    rows = decode(records)
    assert rows.schema.field("id").type == pa.int32()
    assert rows[NO_CHANGE].to_pylist() == [False, False, False, True]
    assert rows.drop_columns([NO_CHANGE]).to_pylist() == [
        {"id": 1, "euro": 10.0, "deleted": False, "source_lsn": 50},
        {"id": 1, "euro": None, "deleted": False, "source_lsn": 60},
        {"id": 2, "euro": None, "deleted": True, "source_lsn": 70},
        {"id": 2, "euro": None, "deleted": True, "source_lsn": None},
    ]
    assert decode(records.slice(0, 2)).schema == rows.schema


def test_a_record_that_cannot_be_read_is_refused_by_its_offset(registry: str, records: pa.RecordBatch) -> None:
    values = pa.array([*records.column("value").to_pylist()[:3], b"no event"], pa.binary())
    with pytest.raises(LakeError, match=r"the value of the record at offset 3 of .* cannot be read: .* wire format"):
        debezium_registry(registry, TOPIC)(records.set_column(1, "value", values))


def test_fields_that_the_source_does_not_have_are_refused(registry: str, records: pa.RecordBatch) -> None:
    with pytest.raises(LakeError, match="the events' source has no 'pos'; it has: lsn"):
        debezium_registry(registry, TOPIC, source=["pos"])(records)

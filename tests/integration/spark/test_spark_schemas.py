"""`from_registry` in Spark: batches and streams of what confluent-kafka's serializers wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.model.errors import ConfigError
from ottla.spark.schemas import from_registry
from ottla.spark.schemas.registry_reader import RegistryUnreachable, UnknownSchema
from ottla.spark.spark_features import SparkFeature
from ottla.testing import ControlledBroker, produce
from tests.integration.spark.needs import needs

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "cents", "type": ["null", "long"], "default": None}]}
VALUE = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture(scope="module")
def registry_broker() -> Iterator[ControlledBroker]:
    with ControlledBroker({"schema.registry.listeners": "http://127.0.0.1:0"}) as running:
        yield running


@pytest.fixture(scope="module")
def client(registry_broker: ControlledBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry_broker.schema_registry_url}) as made:
        yield made


@pytest.fixture(scope="module")
def orders(spark: SparkSession, registry_broker: ControlledBroker, client: SchemaRegistryClient) -> DataFrame:
    """Three records of two versions, a bad one and a null."""
    old, new = AvroSerializer(client, json.dumps(OLD)), AvroSerializer(client, json.dumps(NEW))
    values = [
        old({"id": "a"}, VALUE),
        new({"id": "b", "cents": 5}, VALUE),
        b"not of a registry",
        None,
        new({"id": "c", "cents": None}, VALUE),
    ]
    produce("orders", [("k", value) for value in values], bootstrap=registry_broker.bootstrap)
    return (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", registry_broker.bootstrap)
        .option("subscribe", "orders")
        .load()
    )


@needs(SparkFeature.ARROW_FUNCTIONS)
def test_records_of_all_versions_are_read_in_the_columns_of_the_latest(
    orders: DataFrame, registry_broker: ControlledBroker
) -> None:
    column = from_registry("value", registry_broker.schema_registry_url, subject="orders-value")
    frame = orders.select("offset", column.alias("order"))
    assert frame.select("order.value.*").schema.simpleString() == "struct<id:string,cents:bigint>"
    rows = frame.orderBy("offset").collect()
    assert [row.order and row.order.value and tuple(row.order.value) for row in rows] == [
        ("a", None),
        ("b", 5),
        None,
        None,
        ("c", None),
    ]
    assert "wire format" in rows[2].order.error
    assert rows[3].order is None
    good = frame.where("order.error is null").select("order.value.cents").agg(F.sum("cents")).collect()
    assert good[0][0] == 5


@needs(SparkFeature.ARROW_FUNCTIONS)
def test_stream_sets_bad_records_aside(
    spark: SparkSession, orders: DataFrame, registry_broker: ControlledBroker, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", registry_broker.bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    column = from_registry("value", registry_broker.schema_registry_url, schema=json.dumps(OLD))
    seen: dict[str, list[str]] = {"good": [], "bad": []}

    def take(batch: DataFrame, _: int) -> None:
        for row in batch.select("order.*").where("schema_id is not null or error is not null").collect():
            seen["bad" if row.error else "good"].append(row.error or row.value.id)

    query = (
        stream.select(column.alias("order"))
        .writeStream.option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen["good"]) == ["a", "b", "c"]
    assert len(seen["bad"]) == 1


@needs(SparkFeature.ARROW_FUNCTIONS)
def test_json_is_read_by_sparks_own_function(
    spark: SparkSession, registry_broker: ControlledBroker, client: SchemaRegistryClient
) -> None:
    serialize = JSONSerializer('{"title":"Page","type":"object"}', client)
    data = serialize({"url": "/", "ms": 7}, SerializationContext("pages", MessageField.VALUE))
    frame = spark.createDataFrame([(bytearray(data),)], "value binary")
    text = from_registry("value", registry_broker.schema_registry_url, subject="pages-value").getField("value")
    [row] = frame.select(F.from_json(text, "url string, ms long").alias("page")).select("page.*").collect()
    assert (row.url, row.ms) == ("/", 7)


@needs(SparkFeature.ARROW_FUNCTIONS)
def test_mistakes_are_reported_where_the_column_is_created(registry_broker: ControlledBroker) -> None:
    url = registry_broker.schema_registry_url
    with pytest.raises(ConfigError, match="needs the reader's schema"):
        from_registry("value", url)
    with pytest.raises(UnknownSchema, match="nothing-value"):
        from_registry("value", url, subject="nothing-value")
    with pytest.raises(RegistryUnreachable, match="no registry answers"):
        from_registry("value", "http://127.0.0.1:1", subject="orders-value")

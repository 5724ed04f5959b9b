"""One Spark session and one broker for all Spark tests; data is produced and read back by another client library."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

import ottla.spark
from ottla.testing.broker import RunningBroker
from tests.integration.spark.peer import Peer
from tests.old_records import APACHE_KAFKA_KEEPS_OLD_RECORDS, KEEPS_OLD_RECORDS
from tests.peers.apache_kafka import ApacheKafka, KafkaUnavailable

Read = Callable[..., DataFrame]
ReadStream = Callable[..., DataStreamReader]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = ottla.spark.session("ottla tests", master="local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def few_partitions(spark: SparkSession) -> Iterator[None]:
    """State in two partitions: each costs files for each batch."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name) or "4"
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)


@pytest.fixture(scope="session", params=["ottla", "apache-kafka"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    if request.param == "ottla":
        with RunningBroker(settings=KEEPS_OLD_RECORDS) as broker:
            yield Peer(broker.bootstrap)
        return
    try:
        with ApacheKafka(APACHE_KAFKA_KEEPS_OLD_RECORDS) as kafka:
            yield Peer(kafka.bootstrap)
    except KafkaUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be had: {error}")


@pytest.fixture
def topic(peer: Peer) -> str:
    """A fresh topic of two partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    peer.create_topic(name, 2)
    return name


@pytest.fixture
def read(spark: SparkSession, peer: Peer) -> Read:
    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", peer.bootstrap)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return load


@pytest.fixture
def read_stream(spark: SparkSession, peer: Peer) -> ReadStream:
    def reader(**options: str) -> DataStreamReader:
        return spark.readStream.format("ottla").option("kafka.bootstrap.servers", peer.bootstrap).options(**options)

    return reader

"""A cluster that does not answer when a query is planned is reported within the time limit."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.errors import ClientError
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.spark.options.connection import Connection
from ottla.spark.options.read_options import ReadOptions, parse_read_options
from ottla.spark.source import cluster_view
from ottla.spark.source.batch_reader import BatchReader
from ottla.spark.source.stream_reader import StreamReader
from tests.unit.client.fake_cluster import FakeCluster, Fault

# The time that is given, and for how long a query then waits at most; without one it is that of Kafka's clients.
TIMES = [
    ({}, 60_000),
    ({"kafka.request.timeout.ms": "4000"}, 4_000),
    ({"kafka.request.timeout.ms": "4000", "kafka.default.api.timeout.ms": "9000"}, 9_000),
]


@pytest.fixture(params=["down", "silent"])
def fake(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> FakeCluster:
    fake = FakeCluster(3)
    fake.add_topic("t", 3)
    for broker in fake.brokers.values():
        if request.param == "down":
            broker.stop()
        else:
            broker.fault_of = lambda api: Fault.SILENCE

    def open_cluster(connection: Connection, memory: ReusedMemory | None = None) -> Cluster:
        return fake.client(connection.client_options)

    monkeypatch.setattr(cluster_view, "open_cluster", open_cluster)
    return fake


def options(given: dict[str, str], *, is_stream: bool) -> ReadOptions:
    base = {"bootstrapServers": "broker-1:9092", "subscribe": "t"}
    return parse_read_options({**base, **given}, is_stream=is_stream)


@pytest.mark.parametrize(("given", "within_ms"), TIMES)
def test_a_batch_is_not_planned_for_longer_than_its_time(
    fake: FakeCluster, given: dict[str, str], within_ms: int
) -> None:
    began_ms = fake.clock.monotonic_ms()
    with pytest.raises(ClientError, match="no broker can be reached"):
        BatchReader(options(given, is_stream=False), ("value",)).partitions()
    assert within_ms - 1_300 < fake.clock.monotonic_ms() - began_ms < within_ms + 100


@pytest.mark.parametrize(("given", "within_ms"), TIMES)
def test_a_micro_batch_is_not_planned_for_longer_than_its_time(
    fake: FakeCluster, given: dict[str, str], within_ms: int
) -> None:
    stream = StreamReader(options(given, is_stream=True), ("value",))
    began_ms = fake.clock.monotonic_ms()
    with pytest.raises(ClientError, match="no broker can be reached"):
        stream.latestOffset({"t": {"0": 1}}, ReadAllAvailable())
    assert within_ms - 1_300 < fake.clock.monotonic_ms() - began_ms < within_ms + 100
    stream.stop()

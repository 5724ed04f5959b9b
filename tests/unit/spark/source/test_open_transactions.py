"""A query that is to read committed records only, on a log that ends behind an open transaction."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.model.identifiers import TopicPartition, uuid_to_text
from ottla.records.builder import build_batch
from ottla.records.record import Record
from ottla.spark.errors import DataLoss
from ottla.spark.lake.lake_table import LakeTable
from ottla.spark.lake.plans import plan_load
from ottla.spark.options.connection import Connection
from ottla.spark.options.read_options import ReadOptions, parse_read_options
from ottla.spark.source import cluster_view
from ottla.spark.source.batch_reader import BatchReader, TaskPartition
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.stream_reader import StreamReader
from tests.unit.client.fake_cluster import FakeCluster

OPEN, READ, WRITTEN = 50, 80, 100
PLACE = TopicPartition("t", 0)
ID = UUID(int=7)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """The topic `t` with 100 records, of which those from 50 on are of a transaction that may still be aborted."""
    fake = FakeCluster()
    fake.add_topic("t", 1)
    fake.topic_ids["t"] = ID
    fake.partitions[PLACE].append(build_batch([Record(0, 1000, None, b"x")] * WRITTEN))
    fake.open_transactions[PLACE] = OPEN

    def open_cluster(connection: Connection, memory: ReusedMemory | None = None) -> Cluster:
        return fake.client(connection.client_options)

    monkeypatch.setattr(cluster_view, "open_cluster", open_cluster)
    return fake


def options(*, is_stream: bool, **more: str) -> ReadOptions:
    base = {"bootstrapServers": "broker-1:9092", "subscribe": "t", "kafka.isolation.level": "read_committed"}
    return parse_read_options({**base, **more}, is_stream=is_stream)


def batch_ranges(**more: str) -> list[OffsetRange]:
    tasks = BatchReader(options(is_stream=False, **more), ("value",)).partitions()
    return [part for task in tasks if isinstance(task, TaskPartition) for part in task.task.ranges]


def test_a_batch_reads_up_to_the_transaction_and_nothing_where_it_starts_after_it(fake: FakeCluster) -> None:
    assert batch_ranges() == [OffsetRange("t", 0, 0, OPEN, ID)]
    assert batch_ranges(startingOffsets=f'{{"t": {{"0": {READ}}}}}') == []
    with pytest.raises(DataLoss, match="names offset 101 of t-0, which has 0 to 100"):
        batch_ranges(startingOffsets='{"t": {"0": 101}}')


def test_a_stream_that_has_read_past_it_waits(fake: FakeCluster) -> None:
    stream = StreamReader(options(is_stream=True), ("value",))
    start: dict[str, Any] = {"t": {"0": READ}, "$ottla": {"ids": {"t": uuid_to_text(ID)}}}
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    fake.open_transactions[PLACE] = 90
    assert stream.latestOffset(start, ReadAllAvailable())["t"] == {"0": 90}
    stream.stop()


class Numbers:
    """What a load asks a table for."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number_of(self, app_id: str) -> int | None:
        return self.numbers.get(app_id)


@pytest.mark.parametrize("going_on", ["true", "false"])
def test_a_load_that_has_loaded_past_it_has_nothing_to_load(fake: FakeCluster, going_on: str) -> None:
    numbers = Numbers()
    table = cast(LakeTable, numbers)
    of_all = options(is_stream=False, **{"kafka.isolation.level": "read_uncommitted"})
    numbers.numbers |= plan_load(table, of_all).numbers
    of_committed = options(is_stream=False, failOnDataLoss=going_on)
    plan = plan_load(table, of_committed)
    assert plan.ranges == []
    assert plan_load(cast(LakeTable, Numbers()), of_committed).ranges == [OffsetRange("t", 0, 0, OPEN, ID)]

"""Planning of micro-batches, against a cluster that is only numbers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.model.identifiers import TopicPartition
from ottla.spark.errors import DataLoss
from ottla.spark.options.offset_spec import OffsetDict, Offsets
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.source import stream_reader
from ottla.spark.source.batch_reader import TaskPartition
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.stream_reader import StreamReader


class Logs:
    """Stands in for `ClusterView`: `[start, end)` of each partition."""

    def __init__(self, **logs: tuple[int, int]) -> None:
        self.logs = {TopicPartition(name[0], int(name[1:])): log for name, log in logs.items()}
        self.is_closed = False

    def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        return sorted(self.logs)

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        return {place: self.logs[place][0] for place in places}

    def latest(self, places: Iterable[TopicPartition]) -> Offsets:
        return {place: self.logs[place][1] for place in places}

    def close(self) -> None:
        self.is_closed = True


def reader(monkeypatch: pytest.MonkeyPatch, logs: Logs, **options: str) -> StreamReader:
    monkeypatch.setattr(stream_reader, "ClusterView", lambda _: logs)
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a,b"}
    return StreamReader(parse_read_options(base | options, is_stream=True), ("value",))


def planned(stream: StreamReader, start: OffsetDict, end: OffsetDict) -> list[OffsetRange]:
    return [
        part
        for partition in stream.partitions(start, end)
        if isinstance(partition, TaskPartition)
        for part in partition.task.ranges
    ]


def test_everything_available_is_planned_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, Logs(a0=(0, 10), b0=(5, 7)))
    start = {"a": {"0": 3}, "b": {"0": 5}}
    assert stream.getDefaultReadLimit() == ReadAllAvailable()
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"a": {"0": 10}, "b": {"0": 7}}
    assert planned(stream, start, end) == [OffsetRange("a", 0, 3, 10), OffsetRange("b", 0, 5, 7)]


def test_the_engines_limit_is_shared_and_its_absence_overrides_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, Logs(a0=(0, 30), b0=(0, 10)), maxOffsetsPerTrigger="4")
    start = {"a": {"0": 0}, "b": {"0": 0}}
    assert stream.getDefaultReadLimit() == ReadMaxRows(4)
    assert stream.latestOffset(start, ReadMaxRows(4)) == {"a": {"0": 3}, "b": {"0": 1}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"a": {"0": 30}, "b": {"0": 10}}
    assert stream.reportLatestOffset() == {"a": {"0": 30}, "b": {"0": 10}}


def test_nothing_is_planned_when_nothing_came(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, Logs(a0=(0, 10)))
    assert stream.latestOffset({"a": {"0": 10}}, ReadAllAvailable()) == {"a": {"0": 10}}
    assert planned(stream, {"a": {"0": 10}}, {"a": {"0": 10}}) == []


def test_available_now_ends_where_it_began_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10))
    stream = reader(monkeypatch, logs)
    stream.prepareForTriggerAvailableNow()
    logs.logs[TopicPartition("a", 0)] = (0, 99)
    logs.logs[TopicPartition("a", 1)] = (0, 99)
    assert stream.latestOffset({"a": {"0": 4}}, ReadAllAvailable()) == {"a": {"0": 10}}


def test_new_partitions_begin_at_their_log_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, Logs(a0=(0, 10), a1=(4, 9)))
    start = {"a": {"0": 10}}
    end = stream.latestOffset(start, ReadMaxRows(3))
    assert end == {"a": {"0": 10, "1": 7}}
    assert planned(stream, start, end) == [OffsetRange("a", 1, 4, 7)]


def test_a_partition_that_is_gone_stops_the_query_or_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"a": {"0": 3}, "b": {"0": 5}}
    with pytest.raises(DataLoss, match="b-0"):
        reader(monkeypatch, Logs(a0=(0, 10))).latestOffset(start, ReadAllAvailable())
    patient = reader(monkeypatch, Logs(a0=(0, 10)), failOnDataLoss="false")
    assert patient.latestOffset(start, ReadAllAvailable()) == {"a": {"0": 10}}


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(100)])
def test_a_log_that_shrank_stops_the_query_or_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, limit: ReadAllAvailable | ReadMaxRows
) -> None:
    start = {"a": {"0": 50}}
    with pytest.raises(DataLoss, match="up to offset 50, and now it ends at 8"):
        reader(monkeypatch, Logs(a0=(0, 8))).latestOffset(start, limit)
    patient = reader(monkeypatch, Logs(a0=(0, 8)), failOnDataLoss="false")
    end = patient.latestOffset(start, limit)
    assert end == {"a": {"0": 8}}
    assert planned(patient, start, end) == [OffsetRange("a", 0, 0, 8)]


def test_the_pickled_reader_takes_no_connection_along(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 8))
    stream = reader(monkeypatch, logs)
    stream.prepareForTriggerAvailableNow()
    copy = pickle.loads(pickle.dumps(stream))
    assert isinstance(copy, StreamReader)
    stream.stop()
    assert logs.is_closed

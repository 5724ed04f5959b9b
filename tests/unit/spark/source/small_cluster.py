"""A cluster that is only numbers, for the planning of micro-batches; and Spark's engine around a stream reader."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from ottla.lost_offsets import LostRange
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.errors import DataLoss, SparkOptionError
from ottla.spark.options.offset_spec import EARLIEST, LATEST, AtOffset, AtOffsets, Offsets, OffsetSpec
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.source import stream_reader
from ottla.spark.source.batch_reader import TaskPartition
from ottla.spark.source.cluster_view import Subscribed
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.stream_reader import StreamReader


class Logs:
    """Stands in for `ClusterView`: `[start, end)` of each partition; `Logs(a0=(0, 10))` is partition 0 of topic a."""

    def __init__(self, **logs: tuple[int, int]) -> None:
        self.logs = {TopicPartition(name[0], int(name[1:])): log for name, log in logs.items()}
        self.topic_ids: dict[str, UUID] = {}
        self.cluster_id = ""
        self.is_closed = False
        self.lost: list[LostRange] = []
        self.fails = True
        self.averages: dict[TopicPartition, float] = {}
        # Where readers of committed records stop, if not at the log's end.
        self.open_transactions: Offsets = {}
        self.asked_gone: list[list[TopicPartition]] = []
        self.asked_cut: list[TopicPartition] = []

    def partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        return sorted(self.logs)

    def subscribed(self, *, missing_ok: bool = False) -> Subscribed:
        ids = {place.topic: self.topic_ids.get(place.topic, ZERO_UUID) for place in self.logs}
        return Subscribed(sorted(self.logs), ids, self.cluster_id)

    def earliest(self, places: Iterable[TopicPartition]) -> Offsets:
        return {place: self.logs[place][0] for place in places}

    def latest(self, places: Iterable[TopicPartition]) -> Offsets:
        return self.log_ends(places := list(places)) | {
            place: offset for place, offset in self.open_transactions.items() if place in places
        }

    def log_ends(self, places: Iterable[TopicPartition]) -> Offsets:
        return {place: self.logs[place][1] for place in places}

    def offsets(self, spec: OffsetSpec, places: Iterable[TopicPartition], *, is_start: bool) -> Offsets:
        if isinstance(spec, AtOffset):
            return self.latest(places) if spec.offset == LATEST else self.earliest(places)
        if not isinstance(spec, AtOffsets):
            raise SparkOptionError("these logs have no times")
        return {
            place: self.logs[place][1] if offset == LATEST else self.logs[place][0] if offset == EARLIEST else offset
            for place, offset in spec.offsets.items()
        }

    def check_gone(self, places: Collection[TopicPartition], topic_id: UUID) -> None:
        self.asked_gone.append(sorted(places))
        for place in places:
            assert place not in self.logs or topic_id != self.topic_ids.get(place.topic, ZERO_UUID)

    def check_cut(self, place: TopicPartition, read: int) -> None:
        self.asked_cut.append(place)
        assert self.logs[place][1] < read

    def lose(self, losses: list[LostRange]) -> None:
        if self.fails:
            raise DataLoss("; ".join(map(str, losses)))
        self.lost += losses

    def offset_bytes(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        return {place: self.averages.get(place, 0.0) for place in places}

    def checked(self, option: str, offsets: Offsets) -> Offsets:
        return offsets

    def close(self) -> None:
        self.is_closed = True


def reader(monkeypatch: pytest.MonkeyPatch, logs: Logs, **options: str) -> StreamReader:
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a,b"}
    parsed = parse_read_options(base | options, is_stream=True)
    logs.fails = parsed.fails_on_data_loss
    monkeypatch.setattr(stream_reader, "ClusterView", lambda _: logs)
    return StreamReader(parsed, ("value",))


def planned(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
    return [
        part
        for partition in stream.partitions(start, end)
        if isinstance(partition, TaskPartition)
        for part in partition.task.ranges
    ]


class Engine:
    """What Spark does with a reader: the offset log before a batch, the commit log after it, and a replay of a batch
    that is in the one and not in the other.  Offsets go through JSON, as in Spark.
    """

    def __init__(self) -> None:
        self.offset_log: list[str] = []
        self.committed_count = 0

    def plan(self, stream: StreamReader, limit: ReadLimit | None = None) -> list[OffsetRange] | None:
        """The next batch's ranges, or those of the one that was not committed; None when there is nothing new."""
        if self.committed_count == len(self.offset_log):
            start = self._before(stream, self.committed_count)
            end = json.dumps(stream.latestOffset(json.loads(start), limit or ReadAllAvailable()))
            if self.offset_log and end == start:
                return None
            self.offset_log.append(end)
        start = self._before(stream, self.committed_count)
        return planned(stream, json.loads(start), json.loads(self.offset_log[self.committed_count]))

    def commit(self, stream: StreamReader) -> None:
        stream.commit(json.loads(self.offset_log[self.committed_count]))
        self.committed_count += 1

    def _before(self, stream: StreamReader, batch: int) -> str:
        return self.offset_log[batch - 1] if batch else json.dumps(stream.initialOffset())

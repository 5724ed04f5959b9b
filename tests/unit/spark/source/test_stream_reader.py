"""Planning of micro-batches, against a cluster that is only numbers."""

from __future__ import annotations

import json
import pickle
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.model.identifiers import TopicPartition, uuid_to_text
from ottla.spark.errors import BadCheckpoint, DataLoss
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.stream_reader import StreamReader, StreamReaderWithoutLimits
from tests.unit.spark.source.small_cluster import Engine, Logs, planned, reader

OLD, NEW = UUID(int=1000), UUID(int=2000)
A0 = TopicPartition("a", 0)


def plain(checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {topic: offsets for topic, offsets in checkpoint.items() if topic != "$ottla"}


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
    stream = reader(monkeypatch, Logs(a0=(0, 10), a1=(0, 9), b0=(4, 8)))
    start = {"a": {"0": 10}}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert plain(end) == {"a": {"0": 10, "1": 9}, "b": {"0": 8}}
    assert planned(stream, start, end) == [OffsetRange("a", 1, 0, 9), OffsetRange("b", 0, 4, 8)]


def test_a_new_partition_whose_first_records_are_gone_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    logs, start = Logs(a0=(0, 10), a1=(4, 9)), {"a": {"0": 10}}
    with pytest.raises(DataLoss, match=r"offsets 0 to 4 \(exclusive\) of a-1 are gone: the partition is new"):
        reader(monkeypatch, logs).latestOffset(start, ReadAllAvailable())
    patient = reader(monkeypatch, logs, failOnDataLoss="false")
    end = patient.latestOffset(start, ReadMaxRows(3))
    assert planned(patient, start, end) == [OffsetRange("a", 1, 4, 7)]


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
    assert plain(end) == {"a": {"0": 8}}
    assert planned(patient, start, end) == [OffsetRange("a", 0, 0, 8)]


def test_the_pickled_reader_takes_no_connection_along(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 8))
    stream = reader(monkeypatch, logs)
    stream.prepareForTriggerAvailableNow()
    copy = pickle.loads(pickle.dumps(stream))
    assert isinstance(copy, StreamReader)
    stream.stop()
    assert logs.is_closed


def test_a_stream_from_latest_survives_records_that_come_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10))
    engine = Engine()
    stream = reader(monkeypatch, logs)
    assert engine.plan(stream) == []
    for end in (11, 12):
        logs.logs[A0] = (0, end)
        again = reader(monkeypatch, logs)
        assert engine.plan(again) == [], "the first batch was planned, and not committed before the kill"
    engine.commit(again)
    assert engine.plan(again) == [OffsetRange("a", 0, 10, 12)]


def test_a_partly_latest_start_is_planned_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10), a1=(0, 10), a2=(0, 10))
    engine = Engine()
    options = {"startingOffsets": json.dumps({"a": {"0": -1, "1": -2, "2": 7}})}
    first = engine.plan(reader(monkeypatch, logs, **options))
    assert first == [OffsetRange("a", 1, 0, 10), OffsetRange("a", 2, 7, 10)]
    logs.logs = dict.fromkeys(logs.logs, (5, 20))
    assert engine.plan(reader(monkeypatch, logs, **options)) == first


def test_a_first_batch_of_an_earlier_version_is_planned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint has no beginning, and "latest" has moved on: such a query never started again."""
    engine = Engine()
    engine.offset_log = [json.dumps({"a": {"0": 10}})]
    logs = Logs(a0=(0, 15))
    stream = reader(monkeypatch, logs)
    assert engine.plan(stream) == []
    engine.commit(stream)
    assert engine.plan(stream) == [OffsetRange("a", 0, 10, 15)]
    engine = Engine()
    engine.offset_log = [json.dumps({"a": {"0": 10}})]
    assert engine.plan(reader(monkeypatch, logs, startingOffsets="earliest")) == [OffsetRange("a", 0, 0, 10)]


@pytest.mark.parametrize("end", [8, 80])
def test_a_recreated_topic_stops_the_query_or_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    logs = Logs(a0=(0, 50))
    logs.topic_ids["a"] = OLD
    engine = Engine()
    stream = reader(monkeypatch, logs, startingOffsets="earliest")
    assert engine.plan(stream) == [OffsetRange("a", 0, 0, 50, OLD)]
    engine.commit(stream)
    logs.logs[A0], logs.topic_ids["a"] = (0, end), NEW
    with pytest.raises(DataLoss, match=f"deleted and recreated.*{uuid_to_text(OLD)}.*{uuid_to_text(NEW)}"):
        engine.plan(stream)
    patient = reader(monkeypatch, logs, failOnDataLoss="false")
    assert engine.plan(patient, ReadMaxRows(5)) == [OffsetRange("a", 0, 0, 5, NEW)]
    engine.commit(patient)
    assert engine.plan(patient) == [OffsetRange("a", 0, 5, end, NEW)]


def test_a_log_that_was_cut_off_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 50))
    logs.topic_ids["a"] = OLD
    engine = Engine()
    patient = reader(monkeypatch, logs, startingOffsets="earliest", failOnDataLoss="false")
    engine.plan(patient)
    engine.commit(patient)
    logs.logs[A0] = (0, 40)
    assert engine.plan(patient) == []
    engine.commit(patient)
    logs.logs[A0] = (0, 45)
    assert engine.plan(patient) == [OffsetRange("a", 0, 40, 45, OLD)]


def test_a_checkpoint_of_an_earlier_version_continues_and_gets_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 50))
    logs.topic_ids["a"], logs.cluster_id = OLD, "c1"
    stream = reader(monkeypatch, logs)
    assert stream.latestOffset({"a": {"0": 50}}, ReadAllAvailable()) == {"a": {"0": 50}}
    end = stream.latestOffset({"a": {"0": 40}}, ReadAllAvailable())
    assert end == {"a": {"0": 50}, "$ottla": {"cluster": "c1", "ids": {"a": uuid_to_text(OLD)}}}
    assert planned(stream, {"a": {"0": 40}}, end) == [OffsetRange("a", 0, 40, 50, OLD)]


def test_another_cluster_is_noticed_where_topics_have_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 50))
    logs.cluster_id = "c2"
    start = {"a": {"0": 40}, "$ottla": {"cluster": "c1"}}
    with pytest.raises(DataLoss, match="from the cluster c1, and this one is c2"):
        reader(monkeypatch, logs).latestOffset(start, ReadAllAvailable())


def test_a_topic_that_is_subscribed_no_more_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = reader(monkeypatch, Logs(a0=(0, 10)), subscribe="a")
    assert stream.latestOffset({"a": {"0": 3}, "b": {"0": 5}}, ReadAllAvailable()) == {"a": {"0": 10}}


def test_a_start_after_the_target_of_available_now_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10))
    stream = reader(monkeypatch, logs)
    stream.prepareForTriggerAvailableNow()
    logs.logs[A0] = (0, 12)
    engine = Engine()
    assert engine.plan(stream) == []
    engine.commit(stream)
    assert engine.plan(stream) is None
    assert engine.plan(reader(monkeypatch, logs)) is None


@pytest.mark.parametrize(
    "checkpoint", [{"a": 5}, {"a": {"x": 5}}, {"$ottla": {"ids": {"a": "short"}}}, {"$ottla": 1}, {"$ottla": {"x": 1}}]
)
def test_a_checkpoint_of_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, checkpoint: dict[str, Any]) -> None:
    stream: StreamReader = reader(monkeypatch, Logs(a0=(0, 10)))
    with pytest.raises(BadCheckpoint, match="the checkpoint has"):
        stream.latestOffset(checkpoint, ReadAllAvailable())


def test_limits_beside_the_engines_are_kept_and_all_are_dropped_when_it_wants_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = Logs(a0=(0, 300), a1=(0, 20))
    stream = reader(monkeypatch, logs, maxOffsetsPerPartition="100")
    start = {"a": {"0": 0, "1": 0}}
    limit = stream.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert stream.latestOffset(start, limit) == {"a": {"0": 100, "1": 20}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"a": {"0": 300, "1": 20}}
    logs.averages = {A0: 10.0}
    by_bytes = reader(monkeypatch, logs, maxBytesPerTrigger="500")
    assert by_bytes.latestOffset({"a": {"0": 0, "1": 20}}, by_bytes.getDefaultReadLimit()) == {"a": {"0": 50, "1": 20}}


def test_few_records_wait_unless_it_is_the_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 300))
    stream = reader(monkeypatch, logs, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset({"a": {"0": 299}}, limit) == {"a": {"0": 300}}, "the first batch does not wait"
    logs.logs[A0] = (0, 399)
    assert stream.latestOffset({"a": {"0": 300}}, limit) == {"a": {"0": 300}}
    logs.logs[A0] = (0, 400)
    assert stream.latestOffset({"a": {"0": 300}}, limit) == {"a": {"0": 400}}
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset({"a": {"0": 390}}, limit) == {"a": {"0": 400}}


def test_what_is_lost_is_written_down_with_offsets_and_id(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10), a1=(3, 9))
    logs.topic_ids["a"] = NEW
    stream = reader(monkeypatch, logs, onDataLoss="record")
    start = {"a": {"0": 50}, "b": {"0": 7}, "$ottla": {"ids": {"a": uuid_to_text(NEW), "b": uuid_to_text(OLD)}}}
    stream.latestOffset(start, ReadAllAvailable())
    assert [(lost.place, lost.topic_id, lost.first_offset, lost.end_offset) for lost in logs.lost] == [
        (TopicPartition("b", 0), OLD, 7, -1),
        (A0, NEW, 10, 50),
        (TopicPartition("a", 1), NEW, 0, 3),
    ]


def test_losses_are_reported_when_a_batch_is_planned_and_not_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10))
    options = {"minOffsetsPerTrigger": "100", "maxTriggerDelay": "1h"}
    stream = reader(monkeypatch, logs, onDataLoss="record", **options)
    limit = stream.getDefaultReadLimit()
    stream.latestOffset({"a": {"0": 9}}, limit)
    start = {"a": {"0": 10}, "b": {"0": 7, "1": 8}}
    for _ in range(5):
        assert stream.latestOffset(start, limit) == start
    assert not logs.lost
    assert not logs.asked_gone
    logs.logs[A0] = (0, 110)
    assert stream.latestOffset(start, limit) == {"a": {"0": 110}}
    assert len(logs.lost) == 2
    assert logs.asked_gone == [[TopicPartition("b", 0), TopicPartition("b", 1)]]
    with pytest.raises(DataLoss):
        reader(monkeypatch, logs, **options).latestOffset(start, limit)


def test_an_open_transaction_before_what_was_read_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 100))
    logs.topic_ids["a"] = OLD
    logs.open_transactions = {A0: 50}
    stream = reader(monkeypatch, logs, **{"kafka.isolation.level": "read_committed"})
    start = {"a": {"0": 100}, "$ottla": {"ids": {"a": uuid_to_text(OLD)}}}
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    logs.logs[A0], logs.open_transactions = (0, 120), {A0: 110}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert planned(stream, start, end) == [OffsetRange("a", 0, 100, 110, OLD)]


def test_a_log_that_seems_to_be_cut_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 40))
    stream = reader(monkeypatch, logs, failOnDataLoss="false")
    stream.latestOffset({"a": {"0": 50}}, ReadAllAvailable())
    assert logs.asked_cut == [A0]


def unlimited(monkeypatch: pytest.MonkeyPatch, logs: Logs, **options: str) -> StreamReaderWithoutLimits:
    reader(monkeypatch, logs, **options)  # the logs take the cluster's place
    parsed = parse_read_options({"kafka.bootstrap.servers": "h:9092", "subscribe": "a,b"} | options, is_stream=True)
    return StreamReaderWithoutLimits(parsed, ("value",))


def test_without_limits_the_end_of_a_plan_is_the_start_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(a0=(0, 10))
    stream = unlimited(monkeypatch, logs, startingOffsets="earliest")
    first = stream.latestOffset()
    assert planned(stream, stream.initialOffset(), first) == [OffsetRange("a", 0, 0, 10)]
    assert stream.latestOffset() == first, "Spark compares offsets as text: nothing came"
    logs.logs[A0] = (0, 15)
    assert planned(stream, first, stream.latestOffset()) == [OffsetRange("a", 0, 10, 15)]


def test_without_limits_a_restart_continues_at_the_last_batch_of_the_offset_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = Logs(a0=(4, 15))
    logs.topic_ids["a"] = OLD
    ended = unlimited(monkeypatch, logs, startingOffsets="earliest").latestOffset()
    logs.logs[A0] = (4, 8)
    restarted = unlimited(monkeypatch, logs, startingOffsets="earliest")
    assert planned(restarted, ended, ended) == [], "Spark shows where the offset log ends"
    with pytest.raises(DataLoss, match="up to offset 15, and now it ends at 8"):
        restarted.latestOffset()

"""What a task takes for a loss, and what for a time-out, on brokers in memory whose clock a test turns."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.client.fetching.offsets import IsolationLevel
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.reused_memory import ReusedMemory
from ottla.lost_offsets import entry_from_json
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey, VersionRange
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import HEADER, read_header
from ottla.records.record import Record
from ottla.spark.errors import CorruptRecords, DataLoss, ReadTimedOut
from ottla.spark.options.connection import Connection
from ottla.spark.source import range_reading
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.range_reading import LostOffsetsTopic, ReadTask, read_task
from tests.malformed_batches import SHAPES, malformed_batch
from tests.unit.client.fake_cluster import FakeCluster, Fault

OLD, NEW = UUID(int=1000), UUID(int=2000)
PLACE = TopicPartition("t", 0)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """The topic `t`, with the records 0 to 29 in ten batches."""
    return cluster(monkeypatch)


def cluster(monkeypatch: pytest.MonkeyPatch, brokers_count: int = 1) -> FakeCluster:
    fake = FakeCluster(brokers_count)
    fake.add_topic("t", 1)
    fake.topic_ids["t"] = OLD
    fill(fake)

    def open_cluster(connection: Connection, memory: ReusedMemory | None = None) -> Cluster:
        return fake.client(connection.client_options)

    monkeypatch.setattr(range_reading, "open_cluster", open_cluster)
    return fake


def fill(fake: FakeCluster) -> None:
    for _ in range(10):
        fake.partitions[PLACE].append(build_batch([Record(0, 1000, None, b"x" * 40_000)] * 3))


def task(end: int = 30, *, goes_on: bool = False, lost: LostOffsetsTopic | None = None) -> ReadTask:
    connection = Connection("broker-1:9092", 5_000, 20_000)
    ranges = (OffsetRange("t", 0, 0, end, OLD),)
    return ReadTask(connection, ranges, ("offset",), 1 << 10, not goes_on, IsolationLevel.READ_UNCOMMITTED, lost)


def offsets(of: ReadTask) -> list[int]:
    return [offset for batch in read_task(of) for offset in batch.column("offset").to_pylist()]


def test_a_broker_that_falls_silent_is_a_time_out_that_names_it(fake: FakeCluster) -> None:
    batches = read_task(task(goes_on=True))
    next(batches)
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE
    began_ms = fake.clock.monotonic_ms()
    with pytest.raises(ReadTimedOut, match=r"no records of t-0 from offset \d+ .* broker 1 at broker-1:9092 leads it"):
        list(batches)
    assert fake.clock.monotonic_ms() - began_ms < 60_000


def test_a_replica_that_lags_is_tried_again(fake: FakeCluster) -> None:
    left = [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
    fake.brokers[1].error_of = lambda api, _: left.pop() if api is ApiKey.FETCH and left else None
    assert offsets(task(goes_on=True)) == list(range(30))
    assert not left


def test_a_log_that_ends_before_the_plan_has_lost_the_rest(fake: FakeCluster) -> None:
    with pytest.raises(DataLoss, match=r"offsets 30 to 40 \(exclusive\) of t-0 are gone: the log has 0 to 30"):
        offsets(task(end=40))
    assert offsets(task(end=40, goes_on=True)) == list(range(30))


def test_a_loss_is_recorded_before_the_task_ends(fake: FakeCluster) -> None:
    (losses,) = fake.add_topic("ottla-ledger", 1)
    assert offsets(task(end=40, goes_on=True, lost=LostOffsetsTopic("ottla-ledger", "loader"))) == list(range(30))
    (record,) = fake.partitions[losses].records()
    entry = entry_from_json(bytes(record.value or b""))
    assert (entry.lost.place, entry.lost.topic_id, entry.reader) == (PLACE, OLD, "loader")
    assert (entry.lost.first_offset, entry.lost.end_offset) == (30, 40)


def test_lost_offsets_that_cannot_be_written_stop_the_task(fake: FakeCluster) -> None:
    fake.add_topic("ottla-ledger", 1)
    fake.brokers[1].error_of = lambda api, _: ErrorCode.TOPIC_AUTHORIZATION_FAILED if api is ApiKey.PRODUCE else None
    with pytest.raises(Exception, match="1 lost ranges were not written to ottla-ledger"):
        offsets(task(end=40, goes_on=True, lost=LostOffsetsTopic("ottla-ledger", "loader")))


@pytest.mark.parametrize("goes_on", [False, True])
def test_rows_of_a_recreated_topic_are_refused_even_where_fetches_have_names(fake: FakeCluster, goes_on: bool) -> None:
    """They are handed on already when it is found out, so the task fails in either case."""
    fake.brokers[1].versions[ApiKey.FETCH] = VersionRange(4, 12)
    batches = read_task(task(goes_on=goes_on))
    next(batches)
    fake.recreate_topic("t", NEW)
    fill(fake)
    with pytest.raises(DataLoss, match="was deleted"):
        list(batches)


def cut_off(fake: FakeCluster) -> None:
    """Broker 1 continues to lead the partition as it knows it; the others follow a later leader."""
    fake.brokers[1].later_epochs = {}
    for node_id in (2, 3):
        fake.brokers[node_id].later_epochs = {PLACE: 1}


def test_a_former_leader_with_a_shorter_log_is_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = cluster(monkeypatch, brokers_count=3)
    cut_off(fake)
    began_ms = fake.clock.monotonic_ms()
    with pytest.raises(ReadTimedOut, match="its log has 0 to 30"):
        offsets(task(end=40, goes_on=True))
    assert 20_000 < fake.clock.monotonic_ms() - began_ms < 60_000
    fake.brokers[2].later_epochs = fake.brokers[3].later_epochs = {}
    assert offsets(task(end=40, goes_on=True)) == list(range(30))


def test_a_replica_that_keeps_lagging_is_tried_with_pauses(fake: FakeCluster) -> None:
    fake.brokers[1].error_of = lambda api, _: ErrorCode.OFFSET_OUT_OF_RANGE if api is ApiKey.FETCH else None
    with pytest.raises(ReadTimedOut, match="its log has 0 to 30"):
        offsets(task(goes_on=True))
    assert len(fake.brokers[1].seen) < 400, "20 s with pauses of up to a second"


def test_a_broker_that_cannot_say_what_its_log_has_is_a_time_out(fake: FakeCluster) -> None:
    fake.brokers[1].error_of = lambda api, _: ErrorCode.OFFSET_OUT_OF_RANGE if api is ApiKey.FETCH else None
    fake.brokers[1].fault_of = lambda api: Fault.SILENCE if api is ApiKey.LIST_OFFSETS else None
    with pytest.raises(ReadTimedOut, match="no records of t-0 from offset 0"):
        offsets(task(goes_on=True))


def test_a_broker_that_is_down_is_reported_after_the_time_outs(fake: FakeCluster) -> None:
    fake.brokers[1].stop()
    began_ms = fake.clock.monotonic_ms()
    with pytest.raises(ReadTimedOut, match="broker-1:9092"):
        offsets(task(goes_on=True))
    assert fake.clock.monotonic_ms() - began_ms < 60_000


def skipping(of: ReadTask) -> ReadTask:
    return replace(of, skips_unreadable=True)


@pytest.mark.parametrize("area", SHAPES.values(), ids=SHAPES)
def test_a_batch_that_cannot_be_read_is_stepped_over_when_it_is_wanted(
    fake: FakeCluster, area: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (losses,) = fake.add_topic("ottla-ledger", 1)
    fake.partitions[PLACE].append(malformed_batch(area))
    fake.partitions[PLACE].append(build_batch([Record(0, 1000, None, b"x")] * 2))
    with pytest.raises(CorruptRecords, match=r"'t' partition 0, at offset 30: .*option skipUnreadableBatches"):
        offsets(task(35))
    readable = [*range(30), 33, 34]
    assert offsets(skipping(task(35))) == readable
    assert "offsets 30 to 33 (exclusive) of t-0" in caplog.text
    assert offsets(skipping(task(35, lost=LostOffsetsTopic("ottla-ledger", "loader")))) == readable
    (record,) = fake.partitions[losses].records()
    lost = entry_from_json(bytes(record.value or b"")).lost
    assert (lost.place, lost.first_offset, lost.end_offset) == (PLACE, 30, 33)


def test_a_damaged_head_that_claims_more_than_the_log_has_is_not_believed(fake: FakeCluster) -> None:
    fake.partitions[PLACE].append(build_batch([Record(0, 1000, None, b"x")]))
    batch = fake.partitions[PLACE].batches[-1]
    header = read_header(memoryview(batch))._replace(last_offset_delta=100_000)
    fake.partitions[PLACE].batches[-1] = HEADER.pack(*header) + batch[HEADER.size :]
    with pytest.raises(CorruptRecords, match=r"'t' partition 0, at offset 30: .*checksum is wrong"):
        offsets(skipping(task(31)))


def test_rows_before_a_batch_that_cannot_be_read_come_once(fake: FakeCluster) -> None:
    for _ in range(3):
        fake.partitions[PLACE].append(build_batch([Record(0, 1000, None, b"x")]))
        fake.partitions[PLACE].append(malformed_batch(codec=Codec.ZSTD))
    assert offsets(skipping(task(42))) == [*range(30), 30, 34, 38]

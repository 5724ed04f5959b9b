"""The read task of an executor, without Spark around it."""

from __future__ import annotations

import time

import pytest

from ottla.client.fetching.offsets import IsolationLevel
from ottla.spark.errors import DataLoss
from ottla.spark.options.connection import Connection
from ottla.spark.source.offset_ranges import OffsetRange
from ottla.spark.source.range_reading import ReadTask, read_task
from tests.integration.spark.peer import Message, Peer

pytestmark = pytest.mark.interop


def task(peer: Peer, *ranges: OffsetRange, fails_on_data_loss: bool = True) -> ReadTask:
    connection = Connection(peer.bootstrap, request_timeout_ms=1_000, call_timeout_ms=3_000)
    return ReadTask(connection, ranges, ("value",), 1 << 20, fails_on_data_loss, IsolationLevel.READ_UNCOMMITTED)


def values(of: ReadTask) -> list[bytes]:
    return [value for batch in read_task(of) for value in batch.column("value").to_pylist()]


@pytest.fixture
def filled(peer: Peer, topic: str) -> str:
    peer.produce(topic, [Message(None, b"%d" % index, partition=0) for index in range(10)])
    peer.produce(topic, [Message(None, b"%d" % index, partition=1) for index in range(10, 15)])
    return topic


def test_a_task_reads_several_ranges_exactly(peer: Peer, filled: str) -> None:
    found = values(task(peer, OffsetRange(filled, 0, 2, 6), OffsetRange(filled, 1, 1, 3)))
    assert sorted(found) == [b"11", b"12", b"2", b"3", b"4", b"5"]


def test_offsets_that_never_come_are_reported_in_good_time(peer: Peer, filled: str) -> None:
    began = time.monotonic()
    with pytest.raises(DataLoss, match="offsets 10 to 12"):
        values(task(peer, OffsetRange(filled, 0, 8, 12)))
    assert time.monotonic() - began < 60
    lenient = task(peer, OffsetRange(filled, 0, 8, 12), fails_on_data_loss=False)
    assert values(lenient) == [b"8", b"9"]


def test_an_offset_beyond_the_log_is_reported_or_dropped_from_the_range(peer: Peer, filled: str) -> None:
    with pytest.raises(DataLoss, match="are gone"):
        values(task(peer, OffsetRange(filled, 0, 20, 30)))
    assert values(task(peer, OffsetRange(filled, 0, 20, 30), fails_on_data_loss=False)) == []


def test_a_reader_that_is_stopped_early_leaves_no_connection(peer: Peer, filled: str) -> None:
    batches = read_task(task(peer, OffsetRange(filled, 0, 0, 10)))
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]  # it is a generator; an open socket would be a ResourceWarning


@pytest.mark.parametrize("count", [3, 30])
def test_a_topic_of_the_same_name_is_not_read_in_place_of_the_planned_one(peer: Peer, topic: str, count: int) -> None:
    """Shorter or longer than the one before it: only the id shows which topic it is."""
    peer.produce(topic, [Message(None, b"old", partition=0)] * 10)
    planned = OffsetRange(topic, 0, 2, 10, peer.topic_id(topic))
    assert len(values(task(peer, planned))) == 8
    peer.delete_topic(topic)
    peer.create_topic(topic, 2)
    peer.produce(topic, [Message(None, b"new", partition=0)] * count)
    with pytest.raises(DataLoss, match=r"offsets 2 to 10 \(exclusive\) .* are gone: .* was deleted"):
        values(task(peer, planned))
    assert values(task(peer, planned, fails_on_data_loss=False)) == []

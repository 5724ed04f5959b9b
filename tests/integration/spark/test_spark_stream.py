"""`spark.readStream.format("ottla")` against a real broker."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.spark_features import SparkFeature
from tests.eventually import eventually
from tests.integration.spark.conftest import ReadStream
from tests.integration.spark.needs import needs
from tests.integration.spark.peer import Message, Peer

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Message]:
    return [Message(None, b"%d" % index, partition=partition) for index in range(first, first + count)]


class Drain:
    """Reads what is there, once, and remembers the rows of each micro-batch."""

    def __init__(self, read_stream: ReadStream, checkpoint: Path) -> None:
        self._read_stream = read_stream
        self._checkpoint = checkpoint

    def run(self, **options: str) -> tuple[list[list[bytes]], StreamingQuery]:
        batches: list[list[bytes]] = []

        def keep(frame: DataFrame, batch_id: int) -> None:
            batches.append([bytes(row["value"]) for row in frame.select("value").collect()])

        query = (
            self._read_stream(**options)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return batches, query


@pytest.fixture
def drain(read_stream: ReadStream, tmp_path: Path) -> Drain:
    return Drain(read_stream, tmp_path)


@needs(SparkFeature.READ_LIMITS)
def test_available_now_reads_everything_once_in_limited_batches(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(70) + numbered(30, partition=1, first=70))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    batches, query = drain.run(**options)
    assert [len(batch) for batch in batches] == [40, 40, 20]
    assert sorted(int(value) for batch in batches for value in batch) == list(range(100))
    latest = json.loads(query.recentProgress[0].sources[0].latestOffset)
    assert latest == {topic: {"0": 70, "1": 30}}, "the progress report shows how far behind the query is"
    assert drain.run(**options)[0] == []


def test_a_restart_continues_where_the_checkpoint_ends(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(5))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert drain.run(**options)[0] == [[b"0", b"1", b"2", b"3", b"4"]]
    peer.produce(topic, numbered(2, first=5))
    assert drain.run(**options)[0] == [[b"5", b"6"]]


def test_new_partitions_are_read_from_their_beginning(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(1))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert drain.run(**options)[0] == [[b"0"]]
    peer.add_partitions(topic, 3)
    peer.produce(topic, numbered(3, partition=2, first=10))
    assert drain.run(**options)[0] == [[b"10", b"11", b"12"]]


def test_a_stream_starts_at_the_latest_offset_by_default(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(5))
    # Spark runs an empty first batch to note where the query began.
    assert drain.run(subscribe=topic)[0] == [[]]
    peer.produce(topic, numbered(1, first=5))
    assert drain.run(subscribe=topic)[0] == [[b"5"]]


def test_deleted_records_stop_a_stream_or_are_skipped(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(2))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    drain.run(**options)
    peer.produce(topic, numbered(8, first=2))
    peer.delete_records_before(topic, 0, 6)
    with pytest.raises(StreamingQueryException, match="are gone"):
        drain.run(**options)
    batches, _ = drain.run(**options, failOnDataLoss="false")
    assert [value for batch in batches for value in batch] == [b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize("count", [2, 8])
def test_a_recreated_topic_stops_a_stream_or_is_read_from_its_beginning(
    drain: Drain, peer: Peer, topic: str, count: int
) -> None:
    """With fewer records than before, and with more, of which none may be skipped."""
    peer.produce(topic, numbered(5))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    drain.run(**options)
    peer.delete_topic(topic)
    peer.create_topic(topic, 2)
    peer.produce(topic, numbered(count, first=50))
    with pytest.raises(StreamingQueryException, match=f"the topic {topic} was deleted and recreated"):
        drain.run(**options)
    batches, _ = drain.run(**options, failOnDataLoss="false")
    assert [value for batch in batches for value in batch] == [b"%d" % index for index in range(50, 50 + count)]


def test_a_stream_from_latest_starts_on_a_topic_that_is_being_written(
    read_stream: ReadStream, peer: Peer, topic: str, tmp_path: Path
) -> None:
    """The first batch fails after it was planned, and is planned again by a new query, while records come."""
    came: list[bytes] = []
    produced = itertools.count()

    def keep(frame: DataFrame, batch_id: int) -> None:
        came.extend(bytes(row["value"]) for row in frame.select("value").collect())

    def fail(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("killed in the first batch")

    def start(each: Callable[[DataFrame, int], None]) -> StreamingQuery:
        writer = read_stream(subscribe=topic).load().writeStream.foreachBatch(each)
        return writer.option("checkpointLocation", str(tmp_path)).start()

    def produce() -> int:
        number = next(produced)
        peer.produce(topic, numbered(1, first=number))
        return number

    failed_at: list[int] = []
    for _ in range(2):
        query = start(fail)
        while query.isActive:
            produce()
        assert "killed in the first batch" in str(query.exception())
        failed_at.append(produce())
    query = start(keep)
    eventually(lambda: (query.lastProgress, query.exception()), any)
    last = produce()
    query.processAllAvailable()
    query.stop()
    numbers = [int(value) for value in came]
    assert numbers == list(range(numbers[0], last + 1)), "nothing is missing or doubled from the start on"
    assert numbers[0] <= failed_at[0], "the first query's start counts"


def test_an_end_in_a_stream_is_refused_by_name(drain: Drain, topic: str) -> None:
    with pytest.raises(Exception, match="'endingOffsets' does not apply to a stream"):
        drain.run(subscribe=topic, endingOffsets="latest")

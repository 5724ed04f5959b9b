"""What the source does under a Spark that lacks a feature: `tests/integration/spark_versions` runs it under each."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.groups.groups import GroupAdmin
from ottla.client.wire.cluster import Cluster
from ottla.spark.spark_features import SparkFeature
from tests.integration.spark.conftest import Read, ReadStream
from tests.integration.spark.needs import lacks
from tests.integration.spark.peer import Peer
from tests.integration.spark.test_spark_stream import Drain, numbered

pytestmark = [pytest.mark.spark]


@pytest.fixture
def drain(read_stream: ReadStream, tmp_path: Path) -> Drain:
    return Drain(read_stream, tmp_path)


@lacks(SparkFeature.READ_LIMITS)
def test_a_limit_is_refused_with_the_version_that_takes_it(read_stream: ReadStream, topic: str) -> None:
    with pytest.raises(Exception, match=r"'maxOffsetsPerTrigger' needs Spark 4\.2 or newer: Spark 4\.\d+\.\d+ passes"):
        read_stream(subscribe=topic, maxOffsetsPerTrigger="40").load()


@lacks(SparkFeature.READ_LIMITS)
def test_available_now_reads_everything_once_in_one_batch(drain: Drain, peer: Peer, topic: str) -> None:
    peer.produce(topic, numbered(70) + numbered(30, partition=1, first=70))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    batches, _ = drain.run(**options)
    assert sorted(int(value) for batch in batches for value in batch) == list(range(100))
    assert [len(batch) for batch in batches] == [100]
    assert drain.run(**options)[0] == []


@lacks(SparkFeature.READ_LIMITS)
def test_a_group_gets_the_offsets_of_a_run_with_available_now_at_the_start_of_the_next(
    drain: Drain, peer: Peer, topic: str
) -> None:
    peer.produce(topic, numbered(5) + numbered(3, partition=1, first=5))
    options = {"subscribe": topic, "groupId": f"group-{topic}", "startingOffsets": "group"}
    for _ in range(2):
        drain.run(**options)
    with Cluster(peer.bootstrap) as cluster:
        committed = GroupAdmin(cluster).committed(f"group-{topic}")
    assert {place.partition: each.offset for place, each in committed.items()} == {0: 5, 1: 3}


@lacks(SparkFeature.PUSHED_FILTERS)
def test_pushed_conditions_are_refused_with_the_version_that_takes_them(read: Read, topic: str) -> None:
    with pytest.raises(Exception, match=r"'pushFilters' needs Spark 4\.1 or newer"):
        read(subscribe=topic, pushFilters="true")


@lacks(SparkFeature.ARROW_STREAM_SINKS)
def test_rows_of_a_stream_are_written_with_all_their_columns(
    read_stream: ReadStream, peer: Peer, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    peer.create_topic(copy, 2)
    peer.produce(topic, numbered(4) + numbered(3, partition=1, first=4))
    rows = read_stream(subscribe=topic, startingOffsets="earliest", includeHeaders="true").load().drop("topic")
    writer = rows.writeStream.format("ottla").options(
        **{"kafka.bootstrap.servers": peer.bootstrap, "topic": copy, "includeTimestamp": "true"}
    )
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    written = [(each.partition, each.value, each.timestamp_ms) for each in peer.consume(copy, 7)]
    assert written == [(each.partition, each.value, each.timestamp_ms) for each in peer.consume(topic, 7)]

"""A stream from the latest records of a topic that is being written, whose driver is killed in its first batch.

The tests' own session continues from the checkpoint: it is another driver, with another JVM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.producing.record_producer import RecordProducer
from ottla.client.wire.cluster import Cluster
from ottla.testing import ControlledBroker, Topic
from tests.eventually import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WITHIN_S: Final = 480.0
# Records come as often as this, as long as the test runs.
PRODUCED_EVERY_S: Final = 0.05
# The query reads its topic's end, and then the end of its first batch: each response is so late that records arrive
# in between.
ANSWERS_MS: Final = 500

# Prints its first batch, and waits in it to be killed.
DRIVER: Final = """
import json, sys, threading
import ottla.spark

bootstrap, topic, checkpoint = sys.argv[1:]


def wait(frame, batch_id):
    print(json.dumps([batch_id, sorted(int(row["value"]) for row in frame.collect())]), flush=True)
    threading.Event().wait()


spark = ottla.spark.session(master="local[2]")
stream = spark.readStream.format("ottla").options(**{"kafka.bootstrap.servers": bootstrap}, subscribe=topic).load()
query = stream.select("value").writeStream.foreachBatch(wait).option("checkpointLocation", checkpoint).start()
query.awaitTermination()
"""


class LiveProducer:
    """Writes 0, 1, 2, ... to a topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        # As many records are acknowledged.
        self.count = 0

    def __enter__(self) -> LiveProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        with Cluster(self._topic.bootstrap) as cluster, RecordProducer(cluster) as producer:
            while not self._is_over.wait(PRODUCED_EVERY_S):
                producer.add(str(self._topic), None, b"%d" % self.count, timestamp_ms=cluster.clock.now_ms())
                (result,) = producer.flush()
                assert result.error is None
                self.count += 1

    def wait_for_more(self) -> None:
        before = self.count
        eventually(lambda: self.count > before + 5, within_s=WITHIN_S)


@contextmanager
def driver(topic: Topic, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A separate process group, so that a kill ends its Java, too."""
    with (directory / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, topic.bootstrap, str(topic), str(directory / "checkpoint")],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def first_batch(process: subprocess.Popen[str], directory: Path) -> list[int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (directory / "errors").read_text()
    number, values = json.loads(line)
    assert number == 0
    return list(values)


@contextmanager
def continued(
    spark: SparkSession, topic: Topic, directory: Path
) -> Iterator[tuple[StreamingQuery, dict[int, list[int]]]]:
    """The query that continues from the checkpoint, and the rows of each of its batches."""
    batches: dict[int, list[int]] = {}

    def keep(frame: DataFrame, batch_id: int) -> None:
        batches[batch_id] = sorted(int(row["value"]) for row in frame.collect())

    stream = spark.readStream.format("ottla").options(
        **{"kafka.bootstrap.servers": topic.bootstrap}, subscribe=str(topic)
    )
    writer = stream.load().select("value").writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        yield query, batches
    finally:
        query.stop()


def test_nothing_is_lost_when_the_driver_is_killed_in_the_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    with ControlledBroker() as broker, broker.namespace() as namespace:
        topic = namespace.topic("views")
        with LiveProducer(topic) as producer:
            with broker.slowed(answers_ms=ANSWERS_MS), driver(topic, tmp_path) as first:
                planned = first_batch(first, tmp_path)
                begun_before = producer.count
            assert planned, "there is something to lose"
            # No query reads these while they are produced.
            producer.wait_for_more()
            last = producer.count
            with continued(spark, topic, tmp_path) as (query, batches):

                def has_last() -> bool:
                    assert query.exception() is None
                    return any(last in rows for rows in batches.copy().values())

                eventually(has_last, within_s=WITHIN_S)
        assert batches[0] == planned, "the batch is replayed as it was"
        rows = [value for number in sorted(batches) for value in batches[number]]
        assert rows == list(range(rows[0], rows[-1] + 1)), "nothing is missing or doubled from the start on"
        assert rows[0] <= begun_before, "the first start counts"

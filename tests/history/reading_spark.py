"""A process that reads a topic by Spark until SIGTERM, in every way that Spark has.

    python -m tests.history.reading_spark FORMATS JARS NAME BOOTSTRAP TOPIC PARTITIONS_COUNT FILE

`FORMATS`, with commas between them: `ottla`, and `kafka`, which is Spark's own connector in `JARS`, with commas, too.
For each there are

* batch reads of the whole topic, one after the other: every one is recorded as a snapshot of each partition;
* a streaming query into files, a sink with exactly-once semantics;
* a streaming query into another topic, a sink with at-least-once semantics, where duplicates count once.

The sinks' contents are recorded at the end, after all queries have read everything.  A failure of any of these ends
the process.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import ottla.spark
from ottla.client.admin.admin import Admin
from ottla.client.wire.cluster import Cluster
from tests.history.operations import Snapshot
from tests.history.recorder import Recorder, now_ns
from tests.history.signalled_event import set_on

TRIGGER_EVERY: Final = "2 seconds"
LOOK_EVERY_S: Final = 0.2

# partition, offset, value
Row: TypeAlias = tuple[int, int, str]


class SparkReader:
    """Reads `topic` by one format; its sinks are in `directory` and in a separate topic."""

    def __init__(self, spark: SparkSession, source: str, bootstrap: str, topic: str, directory: Path) -> None:
        self._spark = spark
        self._source = source
        self._bootstrap = bootstrap
        self._topic = topic
        self._sink_topic = f"{topic}-by-{source}"
        self._files = directory / "files"
        self._directory = directory
        self._queries: list[StreamingQuery] = []

    def start(self, partitions_count: int) -> Iterator[StreamingQuery]:
        with Cluster(self._bootstrap) as cluster:
            admin = Admin(cluster)
            replicas_count = len(admin.describe_cluster().brokers)
            settings = {"min.insync.replicas": str(max(replicas_count - 1, 1))}
            admin.create_topic(self._sink_topic, partitions_count, replicas_count, settings)
        rows = self._stream().selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        into_files = rows.writeStream.format("parquet").option("path", str(self._files))
        sent = rows.selectExpr("concat(partition, ':', offset) AS key", "value")
        into_topic = (
            sent.writeStream.format(self._source).options(**self._connection()).option("topic", self._sink_topic)
        )
        for name, writer in (("files", into_files), ("topic", into_topic)):
            checkpoint = str(self._directory / f"checkpoint-{name}")
            writer = writer.option("checkpointLocation", checkpoint).trigger(processingTime=TRIGGER_EVERY)
            self._queries.append(writer.start())
            yield self._queries[-1]

    def check(self) -> None:
        """Raise the error that ended a query."""
        for query in self._queries:
            check_query(query)

    def read_at_once(self) -> list[Row]:
        return _rows(self._batch(self._topic))

    def finish(self) -> None:
        """Wait until the queries have read everything."""
        for query in self._queries:
            query.processAllAvailable()
            check_query(query)
            query.stop()

    def rows_of_files(self) -> list[Row]:
        return _rows(self._spark.read.parquet(str(self._files)))

    def rows_of_topic(self) -> list[Row]:
        """Each once: a sink that writes at least once may have written some of them again."""
        place = "split(CAST(key AS STRING), ':')"
        columns = (f"CAST({place}[0] AS INT) AS partition", f"CAST({place}[1] AS LONG) AS offset", "value")
        return sorted(set(_rows(self._batch(self._sink_topic).selectExpr(*columns))))

    def _batch(self, topic: str) -> DataFrame:
        reader = self._spark.read.format(self._source).options(**self._connection())
        return reader.option("subscribe", topic).load()

    def _stream(self) -> DataFrame:
        reader = self._spark.readStream.format(self._source).options(**self._connection())
        return reader.option("subscribe", self._topic).option("startingOffsets", "earliest").load()

    def _connection(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap}


def check_query(query: StreamingQuery) -> None:
    failure = query.exception()
    if failure is not None:
        raise failure
    assert query.isActive, "a query ended unexpectedly"


def has_begun(query: StreamingQuery) -> bool:
    """Whether it has written to its sink."""
    check_query(query)
    return any(each["numInputRows"] for each in query.recentProgress)


def _rows(frame: DataFrame) -> list[Row]:
    table = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").toArrow()
    partitions, offsets, values = (table[name].to_pylist() for name in ("partition", "offset", "value"))
    return sorted(zip(partitions, offsets, values, strict=True))


class Snapshots:
    """Records what was read; `name` and the way of reading are its process."""

    def __init__(self, name: str, partitions_count: int, recorder: Recorder) -> None:
        self._name = name
        self._partitions_count = partitions_count
        self._recorder = recorder

    def add(self, way: str, invoked_ns: int, rows: Iterable[Row]) -> None:
        """A partition without a row has a snapshot, too: without records."""
        completed_ns = now_ns()
        records: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for partition, offset, value in rows:
            records[partition].append((offset, value))
        for partition in range(self._partitions_count):
            of_partition = tuple(records[partition])
            self._recorder.add(Snapshot(f"{self._name}.{way}", invoked_ns, completed_ns, partition, of_partition))


def read(
    readers: dict[str, SparkReader], partitions_count: int, snapshots: Snapshots, stopping: threading.Event
) -> None:
    for reader in readers.values():
        # One after the other: all at once, their Python processes may be too late for Spark on a busy machine.
        for query in reader.start(partitions_count):
            while not has_begun(query):
                stopping.wait(LOOK_EVERY_S)
    is_last = False
    while not is_last:
        # The last one starts when no producer writes any more.
        is_last = stopping.is_set()
        for source, reader in readers.items():
            invoked_ns = now_ns()
            snapshots.add(f"{source}-batch", invoked_ns, reader.read_at_once())
            reader.check()
    for source, reader in readers.items():
        invoked_ns = now_ns()
        reader.finish()
        snapshots.add(f"{source}-files", invoked_ns, reader.rows_of_files())
        snapshots.add(f"{source}-topic", invoked_ns, reader.rows_of_topic())


def _directory() -> tempfile.TemporaryDirectory[str]:
    """A failed query may write to it until the end."""
    return tempfile.TemporaryDirectory(prefix="ottla-spark-", ignore_cleanup_errors=True)


def main(
    sources: Sequence[str], jars: str, name: str, bootstrap: str, topic: str, partitions_count: int, file: str
) -> None:
    stopping = threading.Event()
    set_on(signal.SIGTERM, stopping)
    with Recorder(Path(file)) as recorder, _directory() as directory:
        spark = ottla.spark.session(name, master="local[2]", **{"spark.jars": jars} if jars else {})
        readers = {source: SparkReader(spark, source, bootstrap, topic, Path(directory) / source) for source in sources}
        read(readers, partitions_count, Snapshots(name, partitions_count, recorder), stopping)
        spark.stop()


if __name__ == "__main__":
    _, SOURCES, JARS, NAME, BOOTSTRAP, TOPIC, COUNT, FILE = sys.argv
    main(SOURCES.split(","), JARS, NAME, BOOTSTRAP, TOPIC, int(COUNT), FILE)

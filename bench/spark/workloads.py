"""What a contender is asked to do with a topic: each function does it once and checks that nothing is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bench.raw_client.load import LoadFailed
from bench.spark.contenders import Contender
from ottla.model.errors import OttlaError
from ottla.spark.lake.load import load_topic_to_lake

STREAM_TIMEOUT_S: Final = 600


@contextmanager
def failing_load(what: str) -> Iterator[None]:
    """What Spark and the source raise, as a load that has failed."""
    try:
        yield
    except (PySparkException, Py4JError, OttlaError) as problem:
        raise LoadFailed(f"{what}: {type(problem).__name__}: {str(problem)[:1000]}") from problem


class Workloads:
    """`bootstrap` serves all contenders; what they write goes below `work_dir` and is gone afterwards."""

    def __init__(self, spark: SparkSession, bootstrap: str, work_dir: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._work_dir = work_dir

    def count(self, contender: Contender, topic: str) -> int:
        return self._read(contender, topic).count()

    def sum_of_lengths(self, contender: Contender, topic: str) -> int:
        row = self._read(contender, topic).selectExpr("sum(length(value)) AS bytes").first()
        return 0 if row is None else int(row["bytes"])

    def to_parquet(self, contender: Contender, topic: str) -> int:
        """All columns, by Spark's own writer.  The rows that are in the files."""
        with self._directory("parquet") as target:
            self._read(contender, topic).write.parquet(str(target))
            return sum(pq.read_metadata(path).num_rows for path in target.glob("*.parquet"))

    def load(self, contender: Contender, topic: str) -> int:
        """Ottla's load of a new table; the others have no load, so they write Parquet."""
        if contender.form != "ottla":
            return self.to_parquet(contender, topic)
        with self._directory("lake") as target:
            return load_topic_to_lake(self._spark, self._bootstrap, topic, target).rows_count

    def stream(self, contender: Contender, topic: str, rows_per_trigger: int | None = None) -> int:
        """What is there, to nowhere.  The rows that the query's progress counts."""
        limit = {} if rows_per_trigger is None else {"maxOffsetsPerTrigger": str(rows_per_trigger)}
        with self._directory("checkpoint") as checkpoint:
            query = self._stream(contender, topic, limit).trigger(availableNow=True)
            running = query.option("checkpointLocation", str(checkpoint)).start()
            if not running.awaitTermination(STREAM_TIMEOUT_S):
                running.stop()
                raise LoadFailed(f"the stream of {topic} did not end in {STREAM_TIMEOUT_S} s")
            return sum(progress["numInputRows"] for progress in running.recentProgress)

    @contextmanager
    def endless_stream(self, contender: Contender, topic: str) -> Iterator[Any]:
        """A query without pauses between its micro-batches."""
        with self._directory("checkpoint") as checkpoint:
            query = self._stream(contender, topic, {}).trigger(processingTime="0 seconds")
            running = query.option("checkpointLocation", str(checkpoint)).start()
            try:
                yield running
            finally:
                running.stop()

    def sink(self, contender: Contender, topic: str, rows: Path, codec: str) -> None:
        """The Parquet files of `rows` into the topic."""
        options = {**contender.write, "kafka.bootstrap.servers": self._bootstrap, "topic": topic}
        options["kafka.compression.type"] = codec
        with self._settings(contender.session):
            self._spark.read.parquet(str(rows)).write.format(contender.form).options(**options).mode("append").save()

    def _read(self, contender: Contender, topic: str) -> DataFrame:
        return self._spark.read.format(contender.form).options(**self._read_options(contender, topic)).load()

    def _stream(self, contender: Contender, topic: str, more: Mapping[str, str]) -> Any:
        options = {**self._read_options(contender, topic), "startingOffsets": "earliest", **more}
        return self._spark.readStream.format(contender.form).options(**options).load().writeStream.format("noop")

    def _read_options(self, contender: Contender, topic: str) -> dict[str, str]:
        return {**contender.read, "kafka.bootstrap.servers": self._bootstrap, "subscribe": topic}

    @contextmanager
    def _settings(self, wanted: Mapping[str, str]) -> Iterator[None]:
        before = {name: str(self._spark.conf.get(name)) for name in wanted}
        try:
            for name, value in wanted.items():
                self._spark.conf.set(name, value)
            yield
        finally:
            for name, value in before.items():
                self._spark.conf.set(name, value)

    @contextmanager
    def _directory(self, name: str) -> Iterator[Path]:
        """A place that does not exist yet."""
        target = self._work_dir / name
        shutil.rmtree(target, ignore_errors=True)
        try:
            yield target
        finally:
            shutil.rmtree(target, ignore_errors=True)

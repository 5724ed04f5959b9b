"""Spark's official Kafka connector: python spark_program.py BOOTSTRAP PREFIX JARS SCENARIO...

A separate program, since the connector's jars must be known when the JVM starts.  Prints as the other programs do.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

ROWS = 200
PARTITIONS = 3


class Scenarios:
    def __init__(self, spark: SparkSession, bootstrap: str, prefix: str) -> None:
        self._spark, self._bootstrap, self._prefix = spark, bootstrap, prefix

    def _write(self, topic: str, **options: str) -> None:
        rows = self._spark.range(ROWS).selectExpr(
            "cast(id as string) as key",
            "concat('value ', id) as value",
            "array(struct('number' as key, cast(cast(id as string) as binary) as value)) as headers",
            f"cast(id % {PARTITIONS} as int) as partition",
        )
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self._bootstrap).option("topic", topic)
        for name, value in options.items():
            writer = writer.option(name.replace("_", "."), value)
        writer.option("includeHeaders", "true").save()

    def _read(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        return reader.option("subscribe", topic).option("includeHeaders", "true").load()

    def batch(self) -> None:
        topic = f"{self._prefix}-batch"
        self._write(topic)
        read = self._read(topic).selectExpr("cast(key as string) key", "cast(value as string) value", "offset")
        rows = read.collect()
        assert len(rows) == ROWS, len(rows)
        assert {(row.key, row.value) for row in rows} == {(str(n), f"value {n}") for n in range(ROWS)}

    def headers(self) -> None:
        topic = f"{self._prefix}-headers"
        self._write(topic)
        for row in self._read(topic).selectExpr("cast(key as string) key", "headers").collect():
            assert [(each.key, bytes(each.value)) for each in row.headers] == [("number", row.key.encode())], row

    def compression(self) -> None:
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            topic = f"{self._prefix}-{codec}"
            self._write(topic, kafka_compression_type=codec)
            assert self._read(topic).count() == ROWS, codec

    def streaming(self) -> None:
        """Copy the present records from topic to topic; then only the records since."""
        source, sink = f"{self._prefix}-source", f"{self._prefix}-sink"
        with tempfile.TemporaryDirectory() as checkpoint:
            for round_number in (1, 2):
                self._write(source)
                stream = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
                rows = stream.option("subscribePattern", f"{source}.*").option("startingOffsets", "earliest").load()
                writer = rows.select("key", "value").writeStream.format("kafka").option("topic", sink)
                writer = writer.option("kafka.bootstrap.servers", self._bootstrap)
                query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
                assert query.awaitTermination(100), "the stream did not end"
                assert self._read(sink).count() == ROWS * round_number


def main(bootstrap: str, prefix: str, jars: str, names: list[str]) -> None:
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("connector")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    scenarios = Scenarios(spark, bootstrap, prefix)
    for name in names:
        scenario: Callable[[], None] = getattr(scenarios, name)
        try:
            scenario()
            sys.stdout.write(f"ok {name}\n")
        except Exception as problem:  # noqa: BLE001  # any exception is this scenario's outcome
            sys.stdout.write(f"failed {name}: {type(problem).__name__} {str(problem)[:800]!r}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])

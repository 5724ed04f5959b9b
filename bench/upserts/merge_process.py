"""Spark's own MERGE of each micro-batch, by foreachBatch, under a Python that has Spark alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from bench.spark.parent import hear_from_parent, say_to_parent

EVENT = "op string, after struct<text string>, source struct<lsn bigint>"
COLUMNS = "id bigint, source_lsn bigint, deleted boolean, text string"
MERGE = """
MERGE INTO {table} AS known USING changes AS new ON known.id = new.id
WHEN MATCHED AND new.source_lsn >= known.source_lsn THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
"""
DELTA = "delta"
EXTENSIONS = {
    DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def main(text: str) -> int:
    words = json.loads(text)
    spark = session(words)
    jvm = spark.sparkContext._jvm  # noqa: SLF001  # there is no public way
    say_to_parent({"jvm_pid": int(jvm.java.lang.ProcessHandle.current().pid()), "pid": os.getpid()})
    table = f"delta.`{words['table']}`" if words["format"] == DELTA else "lake.bench.changes"
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING {words['format']}")
    hear_from_parent()
    began_s = time.monotonic()
    batches = stream(spark, words, MERGE.format(table=table))
    say_to_parent({"seconds": time.monotonic() - began_s, "commits": batches})
    hear_from_parent()
    spark.stop()
    return 0


def session(words: Mapping[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": ",".join(words["jars"]),
        "spark.sql.extensions": EXTENSIONS[words["format"]],
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        # As many as the upserts have buckets; Spark's default of 200 is for clusters.
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }
    if words["format"] == DELTA:
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    else:
        settings |= {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": words["table"],
        }
    builder = SparkSession.builder.master("local[2]").appName("merge")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def stream(spark: Any, words: Mapping[str, Any], merge: str) -> int:
    """The number of merges."""
    from pyspark.sql import functions as sql

    def merge_batch(rows: Any, _batch_id: int) -> None:
        event = sql.from_json(sql.col("value").cast("string"), EVENT).alias("event")
        key = sql.from_json(sql.col("key").cast("string"), "id bigint").alias("key")
        changes = rows.where("value IS NOT NULL").select("offset", key, event)
        row = "struct(event.source.lsn AS source_lsn, event.op = 'd' AS deleted, event.after.text AS text)"
        # MERGE refuses a batch in which two rows have one key.
        newest = changes.groupBy(sql.col("key.id").alias("id")).agg(
            sql.expr(f"max_by({row}, struct(event.source.lsn, offset)) AS row")
        )
        newest.select("id", "row.*").createOrReplaceTempView("changes")
        rows.sparkSession.sql(merge)

    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", words["bootstrap"])
        .option("subscribe", words["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", words["rows_per_commit"])
        .load()
    )
    query = (
        source.writeStream.foreachBatch(merge_batch)
        .option("checkpointLocation", words["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for each in query.recentProgress if each["numInputRows"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

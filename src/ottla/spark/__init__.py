"""PySpark: Kafka topics as DataFrames and streams, without a jar.

    import ottla.spark

    spark = ottla.spark.session("clicks per minute")     # or: ottla.spark.register(your_session)
    clicks = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "clicks")
        .load()
    )

The options and columns are those of Spark's own connector for Kafka.  `ottla.spark.lake` loads topics into a Delta
table.  Importing this package imports no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def register(spark: SparkSession) -> None:
    """Make the source `ottla` known to a session: `spark.read`, `readStream`, `write`, `writeStream`."""
    from ottla.spark.registration import register_source

    register_source(spark)


def session(app_name: str = "ottla", *, master: str = "local[*]", **settings: str) -> SparkSession:
    """A quiet session on this machine with the source registered; see `ottla.spark.local_session`."""
    from ottla.spark.local_session import start_session

    return start_session(app_name, master, settings)

"""Registers the data source with a session."""

from __future__ import annotations

from pyspark.sql import SparkSession


def register_source(spark: SparkSession) -> None:
    """After this, `spark.read.format("ottla")`, `readStream`, `write` and `writeStream` work in this session."""
    from ottla.spark.source.data_source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)

"""All topics into one table of the lake; and, to see the audit find it, a record lost there."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ottla.demo.jobs.site import Site
from ottla.demo.lake import EVENTS, lake_files
from ottla.demo.services import TOPICS
from ottla.spark.lake import LakeLoad, Loader


def load(spark: SparkSession, site: Site) -> LakeLoad:
    """By topic and hour; what was committed is told to the audit."""
    return Loader(spark, site.bootstrap, list(TOPICS), site.table(EVENTS), tells_audit=True).load()


def drop_one_row(table: Path) -> None:
    """Remove the last row from the table's largest file, without the table's knowledge."""
    file = lake_files(table)[0].path
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.slice(0, rows.num_rows - 1), file)

"""Delta tables by their names in Spark's own catalog: a Hive metastore, or the memory of the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from ottla.spark.errors import LakeError
from ottla.spark.jvm import is_remote, java_session
from ottla.spark.lake.formats import DeltaTarget
from ottla.spark.lake.target import parse_target

_CATALOG: Final = "spark_catalog."


def spark_table(spark: SparkSession, name: str, storage: Mapping[str, str] | None = None) -> DeltaTarget:
    """A Delta table that `saveAsTable` or `CREATE TABLE ... USING DELTA` has registered: its place is the catalog's.

        Loader(spark, "localhost:9092", "clicks", spark_table(spark, "lake.clicks"))

    `name`: `table`, `schema.table` or `spark_catalog.schema.table`.  The session needs no jars of Delta's.  `storage`:
    settings of S3.  Raises `LakeError`.
    """
    if is_remote(spark):
        raise LakeError("a session of Spark Connect does not show where tables are", hint="give the table's place")
    *schema, table = name.removeprefix(_CATALOG).split(".")
    if len(schema) > 1 or not table or not all(schema):
        raise LakeError(f"{name!r} names no table of Spark's own catalog", hint="write schema.table")
    database = schema[0] if schema else spark.catalog.currentDatabase()
    # Beside SQL, which looks for the jars of the table's format first.
    catalog = java_session(spark).sharedState().externalCatalog()
    if not catalog.databaseExists(database) or not catalog.tableExists(database, table):
        raise LakeError(
            f"Spark's catalog has no table {database}.{table}",
            hint="create it by Spark (CREATE TABLE ... USING DELTA LOCATION '...'), or give the table's place",
        )
    found = catalog.getTable(database, table)
    provider = found.provider().get() if found.provider().isDefined() else "none"
    if provider.lower() != "delta":
        raise LakeError(
            f"{database}.{table} is no Delta table: its format is {provider}",
            hint="an Iceberg table is named in its catalog, as pyiceberg configures it",
        )
    url = found.location().toString()
    if url.startswith("file:/") and not url.startswith("file://"):  # as Java writes it
        url = f"file://{url.removeprefix('file:')}"
    return DeltaTarget(parse_target(url, storage))

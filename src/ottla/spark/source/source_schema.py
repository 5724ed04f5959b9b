"""A user's own schema: some of the columns, in any order, with their types."""

from __future__ import annotations

from pyspark.sql.types import DataType, StructType

from ottla.spark.arrow.columns import ALL_COLUMNS, SPARK_TYPES
from ottla.spark.errors import SparkOptionError


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """Spark neither prunes columns nor limits rows of a Python source, so a narrow schema is how to read less.

    Raises `SparkOptionError` for a column that records do not have.
    """
    for field in schema.fields:
        expected = SPARK_TYPES.get(field.name)
        if expected is None:
            raise SparkOptionError(
                f"the schema has the column {field.name!r}", hint=f"records have {', '.join(ALL_COLUMNS)}"
            )
        if _plain(field.dataType) != expected:
            raise SparkOptionError(
                f"the schema's column {field.name!r} is {field.dataType.simpleString()}",
                hint=f"read it as {expected} and cast it afterwards",
            )
    if not schema.fields:
        raise SparkOptionError("the schema has no columns", hint="name at least one")
    return tuple(schema.names)


def _plain(kind: DataType) -> str:
    return str(kind.simpleString())

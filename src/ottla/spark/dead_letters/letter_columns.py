"""Rows as dead letters: the columns of the records in the topic, and those of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from ottla.dead_letters.letter import (
    CLUSTER_ID,
    ERROR_CHARS_MAX,
    ERROR_CLASS,
    ERROR_MESSAGE,
    LETTER_HEADERS,
    OFFSET,
    PARTITION,
    STAGE,
    TIMESTAMP,
    TOPIC,
    TOPIC_ID,
)
from ottla.model.identifiers import uuid_to_text
from ottla.spark.arrow.columns import ARROW_TYPES, SPARK_TYPES
from ottla.spark.errors import SparkOptionError

# What a letter is made of; the source gives `headers` with the option includeHeaders.
RECORD_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
# The error of a row, while it is on its way.
ERROR: Final = "_dead_letter_error"

TABLE_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster_id", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", ARROW_TYPES["timestamp"]),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", ARROW_TYPES["headers"]),
        pa.field("stage", pa.string()),
        pa.field("error_class", pa.string()),
        pa.field("error_message", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Destination:
    """Of one topic: its id, its dead-letter topic, and the partitions of that."""

    topic_id: UUID
    dead_letter_topic: str
    partitions_count: int


def check_rows(rows: DataFrame) -> None:
    """Raises `SparkOptionError` when a column of the record is missing, or has another type."""
    types = dict(rows.dtypes)
    for name in RECORD_COLUMNS:
        if name not in types:
            hint = 'read with option("includeHeaders", "true")' if name == "headers" else "keep the source's columns"
            raise SparkOptionError(f"dead letters need the column {name!r} of the record", hint=hint)
        if types[name] != SPARK_TYPES[name]:
            raise SparkOptionError(
                f"the column {name!r} is {types[name]}, and not the record's {SPARK_TYPES[name]}",
                hint="give what you compute a name of its own",
            )


def error_text(rows: DataFrame, error: Column) -> Column:
    """`struct<class: string, message: string>` of an error that is a text or already such a struct; null stays null."""
    kind = rows.select(error.alias(ERROR)).schema[ERROR].dataType
    if isinstance(kind, StringType):
        return F.when(error.isNotNull(), F.struct(F.lit("").alias("class"), error.alias("message")))
    if isinstance(kind, StructType) and {"class", "message"} <= set(kind.names):
        return error
    raise SparkOptionError(
        f"the error of a row is {kind.simpleString()}",
        hint="it is a text, or struct<class: string, message: string> as `attempt` gives it; null where there is none",
    )


def as_records(bad: DataFrame, cluster_id: str, stage: str, destinations: Mapping[str, Destination]) -> DataFrame:
    """The rows for the sink: key, value, headers, topic, partition."""
    texts = {
        TOPIC: F.col("topic"),
        PARTITION: F.col("partition").cast("string"),
        OFFSET: F.col("offset").cast("string"),
        STAGE: F.lit(stage),
        ERROR_CLASS: F.coalesce(F.col(f"{ERROR}.class"), F.lit("")),
        ERROR_MESSAGE: F.substring(F.coalesce(F.col(f"{ERROR}.message"), F.lit("")), 1, ERROR_CHARS_MAX),
        CLUSTER_ID: F.lit(cluster_id),
        TOPIC_ID: _of_topic({name: uuid_to_text(each.topic_id) for name, each in destinations.items()}),
        TIMESTAMP: F.unix_millis("timestamp").cast("string"),
    }
    ours = F.array(
        *(F.struct(F.lit(name).alias("key"), F.encode(texts[name], "UTF-8").alias("value")) for name in LETTER_HEADERS)
    )
    counts = _of_topic({name: each.partitions_count for name, each in destinations.items()})
    own = F.coalesce(F.col("headers"), F.array().cast(SPARK_TYPES["headers"]))
    return bad.select(
        "key",
        "value",
        F.concat(own, ours.cast(SPARK_TYPES["headers"])).alias("headers"),
        _of_topic({name: each.dead_letter_topic for name, each in destinations.items()}).alias("topic"),
        F.pmod(F.col("partition"), counts).cast("int").alias("partition"),
    )


def as_table_rows(bad: DataFrame, cluster_id: str, stage: str, destinations: Mapping[str, Destination]) -> DataFrame:
    """The rows for the table, in an order that a batch run again has too; `timestamp` in us since 1970."""
    topic_id = _of_topic({name: uuid_to_text(each.topic_id) for name, each in destinations.items()})
    return bad.select(
        F.lit(cluster_id).alias("cluster_id"),
        "topic",
        topic_id.alias("topic_id"),
        "partition",
        "offset",
        F.unix_micros("timestamp").alias("timestamp"),
        "key",
        "value",
        "headers",
        F.lit(stage).alias("stage"),
        F.coalesce(F.col(f"{ERROR}.class"), F.lit("")).alias("error_class"),
        F.coalesce(F.col(f"{ERROR}.message"), F.lit("")).alias("error_message"),
    ).orderBy("topic", "partition", "offset")


def _of_topic(values: Mapping[str, str] | Mapping[str, int]) -> Column:
    pairs = [F.lit(each) for pair in values.items() for each in pair]
    return F.element_at(F.create_map(*pairs), F.col("topic"))

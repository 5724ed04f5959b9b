"""The options of a write, by the official connector's names, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.model.identifiers import topic_name_problem
from ottla.records.compression import Codec
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.option_reader import OptionReader
from ottla.spark.options.read_options import Connection, parse_connection

# Below the 1 MiB that brokers accept by default (max.message.bytes), even when the codec expands it.
BATCH_BYTES_DEFAULT: Final = 512 * 1024
BATCH_BYTES_MIN: Final = 1024
BATCH_BYTES_MAX: Final = 64 << 20

# The allowed types of each column; a column of another name is not written, as with the official connector.
COLUMN_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "key": frozenset({"binary", "string", "void"}),
    "value": frozenset({"binary", "string", "void"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "timestamp": frozenset({"timestamp", "timestamp_ntz"}),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`topic` None: every row names its own, in the column `topic`."""

    connection: Connection
    topic: str | None
    codec: Codec
    batch_bytes_max: int
    keeps_timestamps: bool


def parse_write_options(
    options: Mapping[str, str], column_types: Mapping[str, str], *, overwrites: bool
) -> WriteOptions:
    """`column_types`: Spark's simple type of each column.  Raises `SparkOptionError`, which names option or column."""
    if overwrites:
        raise SparkOptionError("a topic cannot be overwritten", hint='write with mode("append")')
    reader = OptionReader(options)
    connection = parse_connection(reader)
    topic = reader.text("topic")
    batch_bytes = reader.number("kafka.batch.size", at_least=BATCH_BYTES_MIN, at_most=BATCH_BYTES_MAX)
    parsed = WriteOptions(
        connection,
        topic,
        Codec[reader.choice("kafka.compression.type", {codec.name.lower(): codec.name for codec in Codec}, "NONE")],
        BATCH_BYTES_DEFAULT if batch_bytes is None else batch_bytes,
        reader.flag("includeTimestamp", False),
    )
    # The sink's guarantee depends on these; another value would be broken silently.
    reader.choice("kafka.acks", {"all": "all", "-1": "all"}, "all")
    reader.choice("kafka.enable.idempotence", {"true": "true"}, "true")
    reader.refuse_rest()
    if topic is not None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise SparkOptionError(f"the option 'topic': {problem}")
    _check_columns(parsed, column_types)
    return parsed


def _check_columns(options: WriteOptions, column_types: Mapping[str, str]) -> None:
    if "value" not in column_types:
        raise SparkOptionError(
            "there is no column 'value'",
            hint='add one: df.selectExpr("CAST(id AS STRING) AS key", "payload AS value")',
        )
    if options.topic is None and "topic" not in column_types:
        raise SparkOptionError("neither the option 'topic' nor a column 'topic' is given", hint="name the topic")
    if options.keeps_timestamps and "timestamp" not in column_types:
        raise SparkOptionError("the option 'includeTimestamp' needs a column 'timestamp'")
    for name, allowed in COLUMN_TYPES.items():
        kind = column_types.get(name)
        if kind is not None and kind not in allowed and _is_used(options, name):
            raise SparkOptionError(
                f"the column {name!r} is {kind}", hint=f"it can be {' or '.join(sorted(allowed - {'void'}))}: cast it"
            )


def _is_used(options: WriteOptions, column: str) -> bool:
    if column == "topic":
        return options.topic is None
    return column != "timestamp" or options.keeps_timestamps

"""The columns of a Kafka record in Spark: names, order and types are those of the official connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE))

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

SPARK_TYPES: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

PLAIN_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
ALL_COLUMNS: Final = (*PLAIN_COLUMNS, "headers")


def columns_wanted(include_headers: bool) -> tuple[str, ...]:
    return ALL_COLUMNS if include_headers else PLAIN_COLUMNS


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of these columns, in this order."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


def spark_ddl(columns: Sequence[str]) -> str:
    """The same as Spark's DDL, for `DataSource.schema`."""
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)

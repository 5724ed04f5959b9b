"""Rows that Spark passes one by one are the same batches as those that it passes in Arrow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import length_hint

import pyarrow as pa
import pytest
from pyspark.sql import Row

from ottla.model.limits import MIB
from ottla.spark.arrow.columns import HEADERS_TYPE, SPARK_TYPES
from ottla.spark.sink.row_sink import BATCH_BYTES_MAX, ROWS_PER_BATCH, batches_of, written_columns

# As in Spark's rows.
AFTERNOON = datetime(2026, 7, 1, 14)  # noqa: DTZ001


@pytest.fixture
def zone_of_the_process() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def test_rows_keep_their_values_and_types() -> None:
    columns = written_columns({name: SPARK_TYPES[name] for name in ("key", "value", "topic", "partition", "headers")})
    header = Row(key="h", value=bytearray(b"1"))
    rows = [(bytearray(b"k"), b"v", "t", 3, [header]), (None, None, "t", None, None)]
    (batch,) = batches_of(iter(rows), columns)
    assert batch.to_pydict() == {
        "key": [b"k", None],
        "value": [b"v", None],
        "topic": ["t", "t"],
        "partition": [3, None],
        "headers": [[{"key": "h", "value": b"1"}], None],
    }
    assert batch.schema.types == [pa.binary(), pa.binary(), pa.string(), pa.int32(), HEADERS_TYPE]


@pytest.mark.usefixtures("zone_of_the_process")
def test_a_time_of_a_row_is_one_of_the_processs_zone() -> None:
    (batch,) = batches_of(iter([(AFTERNOON, b"v")]), written_columns({"timestamp": "timestamp"}))
    assert batch.column("timestamp").to_pylist() == [datetime(2026, 7, 1, 12, tzinfo=UTC)]


def test_a_time_without_a_zone_stays_as_it_is() -> None:
    (batch,) = batches_of(iter([(AFTERNOON,)]), written_columns({"timestamp": "timestamp_ntz"}))
    assert batch.column("timestamp").to_pylist() == [AFTERNOON]


def test_columns_that_the_sink_does_not_read_are_left_out() -> None:
    columns = written_columns({"id": "bigint", "value": "string", "timestamp": "string", "topic": "string"})
    assert [(column.name, column.place) for column in columns] == [("value", 1), ("topic", 3)]
    (batch,) = batches_of(iter([(1, "v", "yesterday", "t")]), columns)
    assert batch.to_pydict() == {"value": ["v"], "topic": ["t"]}


def test_many_rows_are_several_batches() -> None:
    rows = ((b"%d" % number,) for number in range(ROWS_PER_BATCH + 1))
    batches = list(batches_of(rows, written_columns({"value": "binary"})))
    assert [batch.num_rows for batch in batches] == [ROWS_PER_BATCH, 1]


@pytest.mark.parametrize(("kind", "large"), [("binary", bytes(BATCH_BYTES_MAX // 2)), ("string", "v" * (4 * MIB))])
def test_large_rows_end_a_batch_by_their_size(kind: str, large: bytes | str) -> None:
    columns = written_columns({"topic": "string", "key": kind, "value": kind})
    rows = iter([("t", None, large), ("t", large, None), ("t", large, large), ("t", None, None), ("t", None, large)])
    batches = batches_of(rows, columns)
    assert next(batches).num_rows == 2
    # Before the next row is received.
    assert length_hint(rows) == 3
    assert [batch.num_rows for batch in batches] == [1, 2]


def test_no_rows_are_no_batch() -> None:
    assert list(batches_of(iter(()), written_columns({"value": "binary"}))) == []

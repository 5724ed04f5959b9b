from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable
from datetime import date
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from ottla.spark.errors import ColumnsRefused, LakeError, TableRefused
from ottla.spark.lake.columns import TIMESTAMP
from ottla.spark.lake.files import split_by_partition
from ottla.spark.lake.rows import (
    DAY_US,
    HOUR_US,
    OUT_OF_RANGE,
    FunctionFailed,
    RowShape,
    as_times,
    partition_problem,
    partitioned,
    period_name,
    period_names,
)

# 2011-06-12 00:00 UTC.
DAY_MS = 1_307_836_800_000
IDS = {"a": "id-of-a", "b": "id-of-b"}


def batch(places: list[tuple[str, int]]) -> pa.RecordBatch:
    """A record for each (topic, timestamp in ms)."""
    count = len(places)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([b"%d" % index for index in range(count)], pa.binary()),
            "topic": pa.array([topic for topic, _ in places]),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([time * 1000 for _, time in places], TIMESTAMP),
        }
    )


RECORDS = batch([("a", DAY_MS), ("b", DAY_MS + 3_600_000), ("a", DAY_MS + 1)])


def test_rows_know_their_topics_id_and_their_hour() -> None:
    rows = RowShape().rows(RECORDS, IDS)
    assert rows.column("topic_id").to_pylist() == ["id-of-a", "id-of-b", "id-of-a"]
    assert rows.column("event_hour").to_pylist() == ["2011-06-12-00", "2011-06-12-01", "2011-06-12-00"]
    assert rows.column("event_time").to_pylist() == rows.column("timestamp").to_pylist()


def test_new_table_has_the_columns_that_partition_it_in_the_types_of_decode() -> None:
    def typed(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"number": pa.array([len(value) for value in records.column("value").to_pylist()], pa.uint8())})

    def untyped(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"number": [len(value) for value in records.column("value").to_pylist()]})

    def fails(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"number": pa.array([records.column("offset")[0].as_py()])})

    def by_numpy(records: pa.RecordBatch) -> pa.Table:
        return pa.table({"number": np.array([len(value) for value in records.column("value").to_pylist()])})

    kinds = []
    for decode in (typed, untyped, fails, by_numpy):
        schema = RowShape(kept=("headers",), partition_by=("topic", "number"), decode=decode).partitioned_schema
        kinds.append(schema.field("number").type if "number" in schema.names else None)
    # numpy has floats where it has no value.
    assert kinds == [pa.int32(), None, None, None]
    with pytest.raises(TableRefused, match="the rows have no column 'number', by which the table is partitioned"):
        _ = RowShape(partition_by=("topic", "number")).partitioned_schema


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.int32(), pa.array([2011, None]), ["2011", None]),
        (pa.int32(), pa.array(["2011"]), ["2011"]),
        (pa.string(), pa.array([2011, -1]), ["2011", "-1"]),
        (pa.string(), pa.array([date(2011, 6, 12)]), ["2011-06-12"]),
        (pa.string(), pa.array([True, False]), ["true", "false"]),
        (pa.date32(), pa.array(["2011-06-12", "0001-01-01"]), ["2011-06-12", "0001-01-01"]),
        (pa.bool_(), pa.array(["true"]), ["true"]),
        (pa.int16(), pa.array([7], pa.int32()), ["7"]),
    ],
)
def test_values_that_partition_a_table_of_another_type_are_stored_as_its_own(
    kind: pa.DataType, given: pa.Array, expected: list[str | None]
) -> None:
    table = pa.schema([("page", kind)])
    found = partitioned(pa.table({"offset": pa.array(range(len(given))), "page": given}), table, ("page",))
    assert found.schema.field("page").type == kind
    assert [values for (values, part) in split_by_partition(found, ("page",)) for _ in range(part.num_rows)] == [
        (each,) for each in sorted(expected, key=lambda each: (each is None, expected.index(each)))
    ]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.int32(), pa.array([1 << 40])),
        (pa.int16(), pa.array([70_000], pa.int32())),
        (pa.int32(), pa.array(["/jobs"])),
        (pa.int32(), pa.array([True])),
        (pa.int32(), pa.array([date(2011, 6, 12)])),
        (pa.bool_(), pa.array([5])),
        (pa.date32(), pa.array([5], pa.int32())),
        (pa.date32(), pa.array(["out-of-range"])),
    ],
)
def test_values_that_a_column_of_the_tables_type_does_not_have_are_refused(kind: pa.DataType, given: pa.Array) -> None:
    problem = re.escape(f"the column 'page', which partitions the table, is {kind} in it, and {given.type} in the new")
    with pytest.raises(ColumnsRefused, match=problem):
        partitioned(pa.table({"page": given}), pa.schema([("page", kind)]), ("page",))


def test_names_of_hours_and_topics_are_texts_of_which_a_table_takes_days_alone_as_dates() -> None:
    texts = pa.schema([(name, pa.string()) for name in ("topic", "event_hour", "event_date")])
    assert partition_problem(pa.schema([("event_date", pa.date32())]), texts, ("event_date",)) is None
    for name, kind in (("event_date", pa.int32()), ("event_hour", pa.date32()), ("topic", pa.int64())):
        assert partition_problem(pa.schema([(name, kind)]), texts, (name,)) is not None
    days = RowShape(partition_by=("event_date",)).rows(RECORDS, IDS)
    found = partitioned(days, pa.schema([("event_date", pa.date32())]), ("event_date",))
    assert found.column("event_date").to_pylist() == [date(2011, 6, 12)] * 3


def test_decoded_columns_stand_beside_the_records_and_may_give_the_time() -> None:
    def decode(records: pa.RecordBatch) -> pa.Table:
        numbers = pa.array([int(value) for value in records.column("value").to_pylist()], pa.uint8())
        times = pa.array([DAY_MS + 7_200_000, None, None], pa.int64())
        return pa.table({"number": numbers, "event_time": times, "nothing": pa.nulls(3)})

    rows = RowShape(kept=("value",), partition_by=("event_date", "number"), decode=decode).rows(RECORDS, IDS)
    assert rows.column("number").type == pa.int32()
    assert rows.column_names == [
        "value",
        "topic",
        "partition",
        "offset",
        "event_time",
        "topic_id",
        "number",
        "event_date",
    ]
    assert rows.column("event_time").cast(pa.int64()).to_pylist() == [
        (DAY_MS + 7_200_000) * 1000,
        (DAY_MS + 3_600_000) * 1000,
        (DAY_MS + 1) * 1000,
    ]


@pytest.mark.parametrize(
    ("decoded", "problem"),
    [
        (pa.table({"x": [1]}), "decode gave 1 row for 3 records"),
        ([1, 2, 3], "decode gave a list"),
        (pa.table({"offset": [1, 2, 3]}), "a column 'offset', which rows have already"),
        (pa.table({"x": pa.array([1, 2, 3], pa.time32("s"))}), "'x' has the type time32"),
    ],
)
def test_what_decode_gives_wrongly_is_refused_by_name(decoded: object, problem: str) -> None:
    with pytest.raises(LakeError, match=problem):
        RowShape(decode=lambda _: decoded).rows(RECORDS, IDS)


def test_an_event_time_is_a_timestamp_or_milliseconds_and_else_the_records_own() -> None:
    times = pa.array([DAY_MS, None, 2**63 - 1], pa.int64())
    rows = RowShape(event_time=lambda _: times).rows(RECORDS, IDS)
    own = [(DAY_MS + 3_600_000) * 1000, (DAY_MS + 1) * 1000]
    assert rows.column("event_time").cast(pa.int64()).to_pylist() == [DAY_MS * 1000, *own]
    stamps = pa.array([5, None], pa.timestamp("ms"))
    assert as_times(stamps).cast(pa.int64()).to_pylist() == [5000, None]
    with pytest.raises(LakeError, match="event_time gave string"):
        RowShape(event_time=lambda _: pa.array(["x"] * 3)).rows(RECORDS, IDS)
    with pytest.raises(LakeError, match="event_time gave a list"):
        RowShape(event_time=lambda _: [1, 2, 3]).rows(RECORDS, IDS)
    with pytest.raises(LakeError, match="1 time for 3 records"):
        RowShape(event_time=lambda _: times[:1]).rows(RECORDS, IDS)


def test_nanoseconds_of_an_event_time_are_cut_off_and_numbers_that_are_no_time_are_null() -> None:
    own = RECORDS.column("timestamp").cast(pa.int64()).to_pylist()[2]
    for given, expected in (
        (pa.array([1_999, None, None], pa.timestamp("ns")), 1),
        (pa.array([5, 2**64 - 1, 2**63], pa.uint64()), 5_000),
    ):
        for shape in (
            RowShape(event_time=lambda _, given=given: pa.chunked_array([given])),  # type: ignore[misc]
            RowShape(decode=lambda _, given=given: pa.table({"event_time": given})),  # type: ignore[misc]
        ):
            times = shape.rows(RECORDS, IDS).column("event_time").cast(pa.int64()).to_pylist()
            assert (times[0], times[2]) == (expected, own)


def test_event_time_that_cannot_be_stored_is_its_functions_failure() -> None:
    seconds = pa.array([2**60] * 3, pa.timestamp("s"))
    for shape, function in (
        (RowShape(event_time=lambda _: seconds), "event_time"),
        (RowShape(decode=lambda _: pa.table({"event_time": seconds})), "decode"),
    ):
        with pytest.raises(FunctionFailed) as raised:
            shape.rows(RECORDS, IDS)
        assert raised.value.function == function


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("no module"), FileNotFoundError(2, "no file"), ConnectionError(), TimeoutError()]
)
def test_error_of_the_machine_refuses_no_record(error: Exception) -> None:
    def fails(_: pa.RecordBatch) -> pa.Table:
        raise error

    with pytest.raises(type(error)):
        RowShape(decode=fails).rows(RECORDS, IDS)


@pytest.mark.parametrize(
    "read",
    [
        gzip.decompress,
        partial(pa.decompress, decompressed_size=9, codec="snappy"),
        bytes.decode,
        lambda value: time.gmtime(10**18),
    ],
)
def test_error_for_the_bytes_of_a_record_refuses_it_also_where_it_is_an_oserror(
    read: Callable[[bytes], object],
) -> None:
    with pytest.raises(FunctionFailed):
        RowShape(decode=lambda _: read(b"\xff" * 20)).rows(RECORDS, IDS)


def test_any_timestamp_has_an_hour() -> None:
    times = pa.array([2**63 - 1, -(2**63), -1, 0], pa.int64()).cast(pa.timestamp("us"))
    assert period_names(times, HOUR_US, "%Y-%m-%d-%H").to_pylist() == [
        OUT_OF_RANGE,
        OUT_OF_RANGE,
        "1969-12-31-23",
        "1970-01-01-00",
    ]
    assert period_name(-62_135_596_800_000_000, "%Y-%m-%d") == "0001-01-01"
    assert period_names(times[2:3], DAY_US, "%Y-%m-%d").to_pylist() == ["1969-12-31"]


def test_an_unknown_column_to_keep_is_refused() -> None:
    with pytest.raises(LakeError, match="no column 'values' to keep"):
        RowShape(kept=("values",))

"""From records to the rows of a table: decoded columns, event time, and the columns that partition it.

Everything works on whole Arrow batches.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.spark.arrow.columns import ARROW_TYPES
from ottla.spark.errors import ColumnsRefused, FunctionRefused, LakeError, RecordsRefused, TableRefused
from ottla.spark.lake.columns import TIMESTAMP, stored_type, wider
from ottla.spark.lake.json_objects import read_objects

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT64: Final = range(-(2**63), 2**63)


def json_field(name: str) -> Callable[[pa.RecordBatch], pa.Array]:
    """For `event_time`: a field of values that are JSON objects, with milliseconds since 1970, or text in ISO 8601.

        Loader(..., event_time=json_field("at_ms"))

    Null, so that the record's own timestamp counts, where a value is no object or has no such field or time.  Text
    without a zone is UTC.  Whole numbers are read by Arrow, in about half of the time that texts take.
    """
    return _JsonField(name)


@dataclass(frozen=True, slots=True)
class _JsonField:
    name: str

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        values = batch.column("value")
        found = self._by_arrow(values)
        if found is not None:
            return found
        return pa.array([self._one(value) for value in values.to_pylist()], pa.int64())

    def _by_arrow(self, values: pa.Array) -> pa.Array | None:
        """None where Arrow would not give exactly a row for each value, or finds something else than whole numbers."""
        found = read_objects(values, pa.schema([pa.field(self.name, pa.int64())]))
        return None if found is None else found.column(0).combine_chunks()

    def _one(self, value: bytes | None) -> int | None:
        if value is None:
            return None
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return None
        found = document.get(self.name) if isinstance(document, dict) else None
        if isinstance(found, bool) or found is None:
            return None
        if isinstance(found, int):
            return found if found in _INT64 else None
        return _iso_ms(found) if isinstance(found, str) else None


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
OUT_OF_RANGE: Final = "out-of-range"

EVENT_TIME: Final = "event_time"
EVENT_HOUR: Final = "event_hour"
EVENT_DATE: Final = "event_date"
TOPIC_ID: Final = "topic_id"
# Which no decode gives.
_OWN_TEXTS: Final = ("topic", TOPIC_ID, EVENT_HOUR, EVENT_DATE)
# By these a record is found in its log.
PLACE_COLUMNS: Final = ("topic", "partition", "offset")
KEPT_BY_DEFAULT: Final = ("key", "value", "timestamp")
KEPT_ON_REQUEST: Final = ("headers", "timestampType")

Decode: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table]
EventTime: TypeAlias = Callable[[pa.RecordBatch], pa.Array | pa.ChunkedArray]

T = TypeVar("T")
Times = TypeVar("Times", pa.Array, pa.ChunkedArray)

PARTITION_HINT: Final = "cast it in decode, or load into a new table"
_PARTITION_TYPES: Final = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)


class FunctionFailed(Exception):
    """`decode` or `event_time` raised for a batch of records; `__cause__` is what it raised."""

    def __init__(self, function: str) -> None:
        super().__init__(function)
        self.function = function


# Of an OSError that bytes cause: those of gzip and of Arrow's codecs have no number, times out of range have EOVERFLOW.
_OF_VALUES: Final = (None, errno.EOVERFLOW, errno.EINVAL)


def _by_user(name: str, function: Callable[[pa.RecordBatch], T], batch: pa.RecordBatch) -> T:
    """Raises `FunctionFailed`; errors of this project and of the machine, which no record causes, as they are."""
    try:
        return function(batch)
    except (OttlaError, MemoryError, ImportError, ConnectionError, TimeoutError):
        raise
    except OSError as error:
        if error.errno in _OF_VALUES:
            raise FunctionFailed(name) from error
        raise
    except Exception as error:
        raise FunctionFailed(name) from error


# Whose frames are in the traceback of a user's function before its own.
CALLER_FILE: Final = _by_user.__code__.co_filename


@dataclass(frozen=True, slots=True)
class RowShape:
    """How records become rows; picklable as functions of Spark are.

    `kept`: the record's columns that the table has, besides its place.  `decode` gives further columns, a row for each
    record.  `event_time` gives timestamps, or milliseconds since 1970; where it is null, and without it, the column
    `event_time` of `decode`, and then the record's timestamp counts.
    """

    kept: tuple[str, ...] = KEPT_BY_DEFAULT
    partition_by: tuple[str, ...] = ("topic", EVENT_HOUR)
    decode: Decode | None = None
    event_time: EventTime | None = None

    def __post_init__(self) -> None:
        known = (*KEPT_BY_DEFAULT, *KEPT_ON_REQUEST)
        for name in self.kept:
            if name not in known:
                raise LakeError(f"records have no column {name!r} to keep", hint=f"known: {', '.join(known)}")

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Of the source; `decode` and `event_time` may look at all of them."""
        extra = tuple(name for name in KEPT_ON_REQUEST if name in self.kept)
        return ("key", "value", *PLACE_COLUMNS, "timestamp", *extra)

    @property
    def known_schema(self) -> pa.Schema | None:
        """Of all rows.  None where `decode` has no `row_schema`: then its columns are known when it was called."""
        given = pa.schema([]) if self.decode is None else getattr(self.decode, "row_schema", None)
        if given is None:
            return None
        decoded = [pa.field(each.name, stored_type(each.name, each.type)) for each in given if each.name != EVENT_TIME]
        return pa.schema([*self.first_schema, *decoded])

    @property
    def first_schema(self) -> pa.Schema:
        """Of a new table, before anything was decoded."""
        types: dict[str, pa.DataType] = {name: ARROW_TYPES[name] for name in (*self.kept, "partition", "offset")}
        types |= {EVENT_TIME: TIMESTAMP, "topic": pa.string(), TOPIC_ID: pa.string()}
        types |= {name: pa.string() for name in (EVENT_HOUR, EVENT_DATE) if name in self.partition_by}
        return pa.schema([pa.field(name, kind) for name, kind in types.items()])

    @property
    def partitioned_schema(self) -> pa.Schema:
        """The same, with the columns of `decode` that partition it, if it gives their types for no records.

        A type that cannot partition a table is none: numpy has floats where it has no value.  Raises `TableRefused`
        where no function gives the columns.
        """
        schema = self.first_schema
        missing = [name for name in self.partition_by if name not in schema.names]
        if not missing:
            return schema
        if self.decode is None:
            raise TableRefused(
                f"the rows have no column {missing[0]!r}, by which the table is partitioned",
                hint="give a decode that has it among its columns",
            )
        columns = self.read_columns
        nothing = pa.RecordBatch.from_arrays([pa.array([], ARROW_TYPES[name]) for name in columns], names=list(columns))
        try:
            found = self._decoded(nothing)
        except (FunctionFailed, OttlaError):
            return schema
        for name in missing:
            if name in found:
                with suppress(ColumnsRefused):
                    schema = schema.append(pa.field(name, partition_type(name, found[name].type)))
        return schema

    def rows(self, batch: pa.RecordBatch, topic_ids: Mapping[str, str], times: pa.Array | None = None) -> pa.Table:
        """`times`: the event times where Spark has computed them already.  Raises `FunctionFailed`, `LakeError`."""
        decoded = self._decoded(batch)
        if times is None:
            times = self._times(batch, decoded)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            name: batch.column(name) for name in (*self.kept, *PLACE_COLUMNS)
        }
        columns[EVENT_TIME] = times
        columns[TOPIC_ID] = ids_of(batch.column("topic"), topic_ids)
        for name, column in decoded.items():
            if name == EVENT_TIME:
                continue
            if name in columns or name in (EVENT_HOUR, EVENT_DATE):
                raise FunctionRefused(
                    f"decode gives a column {name!r}, which rows have already", hint="give it another name"
                )
            columns[name] = column
        if EVENT_HOUR in self.partition_by:
            columns[EVENT_HOUR] = period_names(times, HOUR_US, "%Y-%m-%d-%H")
        if EVENT_DATE in self.partition_by:
            columns[EVENT_DATE] = period_names(times, DAY_US, "%Y-%m-%d")
        return pa.table(columns)

    def _decoded(self, batch: pa.RecordBatch) -> dict[str, pa.ChunkedArray]:
        return {} if self.decode is None else _by_user("decode", partial(_columns, self.decode), batch)

    def _times(self, batch: pa.RecordBatch, decoded: Mapping[str, pa.ChunkedArray]) -> pa.Array:
        stamps = batch.column("timestamp")
        if self.event_time is not None:
            times = _by_user("event_time", partial(_event_times, self.event_time), batch)
        elif EVENT_TIME in decoded:
            times = decoded[EVENT_TIME].combine_chunks()
        else:
            return stamps
        return pc.coalesce(times, stamps)


def _event_times(event_time: EventTime, batch: pa.RecordBatch) -> pa.Array:
    given = event_time(batch)
    if not isinstance(given, (pa.Array, pa.ChunkedArray)):
        raise FunctionRefused(f"event_time gave a {type(given).__name__}", hint="return a pyarrow.Array")
    if len(given) != batch.num_rows:
        raise ColumnsRefused(f"event_time gave {counted(len(given), 'time')} for {counted(batch.num_rows, 'record')}")
    return as_times(given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given)


def _columns(decode: Decode, batch: pa.RecordBatch) -> dict[str, pa.ChunkedArray]:
    decoded = decode(batch)
    if not isinstance(decoded, (pa.RecordBatch, pa.Table)):
        raise FunctionRefused(
            f"decode gave a {type(decoded).__name__}", hint="return a pyarrow.RecordBatch or pyarrow.Table"
        )
    if decoded.num_rows != batch.num_rows:
        raise ColumnsRefused(
            f"decode gave {counted(decoded.num_rows, 'row')} for {counted(batch.num_rows, 'record')}",
            hint="return a row for each record, with nulls where there is nothing",
        )
    found = {}
    for field, column in zip(decoded.schema, decoded.columns, strict=True):
        if field.name == EVENT_TIME:
            found[EVENT_TIME] = as_times(column)
        elif not pa.types.is_null(field.type):  # no value yet, so no type yet
            found[field.name] = column.cast(stored_type(field.name, field.type))
    return found


def as_times(given: Times) -> Times:
    """Timestamps as they are stored; whole numbers are milliseconds, and null where that is no time.

    Nanoseconds are cut off.  Raises `pa.ArrowInvalid` for seconds that are no time.
    """
    if pa.types.is_null(given.type):
        return given.cast(TIMESTAMP)
    if pa.types.is_integer(given.type):
        if given.type == pa.uint64():
            given = pc.if_else(pc.less_equal(given, pa.scalar(_INT64[-1], pa.uint64())), given, None)
        millis = given.cast(pa.int64())
        is_time = pc.and_(pc.greater_equal(millis, -(2**63) // 1000 + 1), pc.less_equal(millis, (2**63 - 1) // 1000))
        return pc.multiply(pc.if_else(is_time, millis, None), 1000).cast(TIMESTAMP)
    if pa.types.is_timestamp(given.type) or pa.types.is_date(given.type):
        # Nanoseconds are divided; an overflow of coarser units must be seen.
        return given.cast(TIMESTAMP, safe=pa.types.is_date(given.type) or given.type.unit != "ns")
    raise ColumnsRefused(f"event_time gave {given.type}", hint="give timestamps, or whole milliseconds since 1970")


def period_names(times: pa.Array, period_us: int, form: str) -> pa.DictionaryArray:
    """Of each time, its hour or day in UTC by name; those beyond the years 1 to 9999 share `OUT_OF_RANGE`."""
    numbers = np.asarray(times.cast(pa.int64())).astype(np.int64) // period_us
    if len(numbers) and (first := numbers.min()) == numbers.max():
        # Nearly always: a log's neighbours are of the same time.
        found, codes = np.array([first]), np.zeros(len(numbers), np.int64)
    else:
        found, codes = np.unique(numbers, return_inverse=True)
    names = [period_name(number * period_us, form) for number in found.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names, pa.string()))


def period_name(time_us: int, form: str) -> str:
    """A producer may send any timestamp: one such record must not stop the load for ever."""
    try:
        moment = datetime.fromtimestamp(time_us // 1_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return OUT_OF_RANGE
    return f"{moment.year:04d}{moment.strftime(form.removeprefix('%Y'))}"


def partition_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Of a column that partitions a table.  Raises `ColumnsRefused` for a type that cannot."""
    kind = stored_type(name, kind)
    if not any(suits(kind) for suits in _PARTITION_TYPES):
        raise ColumnsRefused(
            f"the table cannot be partitioned by {name!r}, which is {kind}", hint="use texts, whole numbers or dates"
        )
    return kind


def partition_problem(table: pa.Schema, rows: pa.Schema, partition_by: Iterable[str]) -> str | None:
    """The first column that partitions the table and whose type in the rows has no value of the table's; None: none.

    Files do not have these columns: their values are texts of a commit, which the table reads as its own type.
    """
    for name in partition_by:
        if name not in table.names or name not in rows.names:
            continue
        expected, found = (stored_type(name, each.field(name).type) for each in (table, rows))
        if not _may_have(expected, found, name):
            return _other_type(name, expected, found)
    return None


def _may_have(expected: pa.DataType, found: pa.DataType, name: str) -> bool:
    """Whether a value of one type may have the same text as one of the table's."""
    if wider(expected, found) == expected or (pa.types.is_integer(expected) and pa.types.is_integer(found)):
        return True
    if pa.types.is_string(found) and name in _OWN_TEXTS:
        return name == EVENT_DATE and pa.types.is_date(expected)
    is_text = pa.types.is_string(expected) or pa.types.is_string(found)
    return is_text and all(any(suits(kind) for suits in _PARTITION_TYPES) for kind in (expected, found))


def _other_type(name: str, expected: pa.DataType, found: pa.DataType) -> str:
    return f"the column {name!r}, which partitions the table, is {expected} in it, and {found} in the new rows"


def partitioned(rows: pa.Table, table: pa.Schema, partition_by: Iterable[str]) -> pa.Table:
    """Rows with the table's types in the columns that partition it, so that it reads each value as it is.

    Raises `ColumnsRefused` for values that its type does not have, and for rows without such a column.
    """
    problem = partition_problem(table, rows.schema, partition_by)
    if problem is not None:
        raise ColumnsRefused(problem, hint=PARTITION_HINT)
    for name in partition_by:
        at = rows.schema.get_field_index(name)
        if at < 0:
            raise ColumnsRefused(
                f"the rows have no column {name!r}, which partitions the table", hint="let decode give it with its type"
            )
        if name not in table.names:
            continue
        given = table.field(name).type
        # A Delta table may have smaller integers than files have: its readers would not take greater values.
        expected = given if pa.types.is_integer(given) else stored_type(name, given)
        found = stored_type(name, rows.field(at).type)
        if found != expected:
            try:
                rows = rows.set_column(at, name, rows.column(at).cast(found).cast(expected))
            except pa.ArrowInvalid as error:
                raise ColumnsRefused(f"{_other_type(name, expected, found)}: {error}", hint=PARTITION_HINT) from error
    return rows


def refuse_empty_texts(rows: pa.Table, partition_by: Iterable[str]) -> None:
    """Raises `RecordsRefused`, with its place, for the first row with an empty text in a column of these."""
    for name in partition_by:
        column = rows.column(name)
        # Those of a dictionary are names of hours and days.
        row = pc.index(column, "").as_py() if pa.types.is_string(column.type) else -1
        if row >= 0:
            topic, partition, offset = (rows.column(each)[row].as_py() for each in PLACE_COLUMNS)
            raise RecordsRefused(
                f"the record at offset {offset} of {topic} partition {partition} has an empty text in {name!r}, which "
                "partitions the table, and Delta tables take it for null",
                hint="let decode give null or another text, or load into an Iceberg table",
                reason="columns",
                place=(topic, partition, offset),
            )


def ids_of(topics: pa.Array, topic_ids: Mapping[str, str]) -> pa.DictionaryArray:
    encoded = topics.dictionary_encode()
    names = [topic_ids[name] for name in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string()))

"""Records that a load's functions refuse: found one by one, and named or set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.fetching.messages import Message
from ottla.model.errors import OttlaError, details_of
from ottla.spark.errors import ColumnsRefused, CorruptRecords, DataLoss, LakeError, RecordsRefused
from ottla.spark.lake import refusals
from ottla.spark.lake.changes import UpsertRule
from ottla.spark.lake.columns import TIMESTAMP
from ottla.spark.lake.publishing import FilesReplaced
from ottla.spark.lake.refusals import LetterTarget, RefusedRecords
from ottla.spark.lake.rows import Decode, RowShape
from ottla.spark.lake.target import parse_target
from ottla.spark.lake.tasks import TaskJob, TaskReport, report_batch, report_of, run_batches
from ottla.spark.options.connection import Connection
from ottla.spark.options.read_options import parse_read_options

OPTIONS = parse_read_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"}, is_stream=False)
GOOD = b'{"page": "/jobs"}'
TARGET = LetterTarget(Connection("localhost:9092"))


def records(*values: bytes | None, headers: object = None) -> pa.RecordBatch:
    """Of clicks-3, from offset 100 on, with the column that Spark computes."""
    count = len(values)
    times = pa.array([7_000_000 + index for index in range(count)], TIMESTAMP)
    columns = {
        "key": pa.array([None if value is None else b"k" for value in values], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["clicks"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
        "timestamp": times,
        "event_time": times,
        "headers": pa.array([headers] * count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
    return pa.RecordBatch.from_pydict(columns)


def pages(batch: pa.RecordBatch) -> pa.Table:
    return pa.table({"page": [json.loads(value)["page"] for value in batch.column("value").to_pylist()]})


class Letters:
    """In place of `ottla.dead_letters.DeadLetters`."""

    def __init__(self) -> None:
        self.put: list[tuple[Message, BaseException | str]] = []
        self.is_closed = False

    def put_all(self, failures: list[tuple[Message, BaseException | str]]) -> None:
        self.put += failures

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Letters:
    found = Letters()
    monkeypatch.setattr(refusals, "DeadLetters", lambda *_, **__: found)
    return found


def report(
    folder: Path,
    *batches: pa.RecordBatch,
    decode: Decode = pages,
    target: LetterTarget | None = None,
    upserts: UpsertRule | None = None,
    columns: pa.Schema | None = None,
    partition_by: tuple[str, ...] = ("topic",),
    widens: bool = True,
    takes_empty_partitions: bool = True,
) -> TaskReport:
    by = ("bucket",) if upserts else partition_by
    job = TaskJob(
        OPTIONS,
        RowShape(partition_by=partition_by, decode=decode),
        parse_target(folder),
        by,
        {"clicks": "id"},
        upserts=upserts,
        letters=target,
        columns=columns,
        widens=widens,
        takes_empty_partitions=takes_empty_partitions,
    )
    [row] = next(iter(run_batches(job, batches))).to_pylist()
    return report_of(row["report"], row["schemas"])


def test_error_of_a_function_names_the_first_record_and_has_the_users_traceback(tmp_path: Path) -> None:
    failure = report(tmp_path, records(*[GOOD] * 37, b"<html>", GOOD, b"{}")).failure
    assert isinstance(failure, RecordsRefused)
    assert str(failure).startswith(
        "decode failed for the record at offset 137 of clicks partition 3: json.decoder.JSONDecodeError: Expecting"
    )
    assert (failure.reason, failure.place) == ("decode", ("clicks", 3, 137))
    [trace] = details_of(failure)
    assert "in pages" in trace
    assert trace.splitlines()[-1].startswith("json.decoder.JSONDecodeError: Expecting value")
    assert "lake/rows.py" not in trace


def test_error_of_this_project_in_a_function_is_raised_as_it_is(tmp_path: Path) -> None:
    def unreachable(batch: pa.RecordBatch) -> pa.Table:
        raise LakeError("the registry cannot be reached")

    failure = report(tmp_path, records(GOOD, GOOD), decode=unreachable, target=TARGET).failure
    assert type(failure) is LakeError


def test_refused_records_are_letters_and_the_others_rows(tmp_path: Path, letters: Letters) -> None:
    bad = {4, 5, 19}
    batch = records(
        *(b"<html>" if index in bad else GOOD for index in range(20)), headers=[{"key": "trace", "value": b"1"}]
    )
    found = report(tmp_path, batch, records(GOOD, b"{}"), target=TARGET)
    assert (found.failure, found.records_count, found.refused) == (None, 18, {"decode": 4})
    assert sum(file.rows_count for file in found.files) == 18
    # In the order of the log.
    assert [(message.topic, message.partition, message.offset) for message, _ in letters.put] == [
        ("clicks", 3, 104),
        ("clicks", 3, 105),
        ("clicks", 3, 119),
        ("clicks", 3, 101),
    ]
    message, error = letters.put[0]
    assert message == Message("clicks", 3, 104, 7_000, b"k", b"<html>", (("trace", b"1"),))
    assert isinstance(error, ValueError)
    assert isinstance(letters.put[-1][1], KeyError)
    assert letters.is_closed


def test_function_that_fails_for_records_together_gets_them_in_parts(tmp_path: Path) -> None:
    def one_at_a_time(batch: pa.RecordBatch) -> pa.Table:
        if batch.num_rows > 3:
            raise ValueError("too many")
        return pages(batch)

    found = report(tmp_path, records(*[GOOD] * 10), decode=one_at_a_time)
    assert (found.failure, found.records_count) == (None, 10)


def test_function_that_gives_no_columns_is_refused_and_its_records_are_no_letters(
    tmp_path: Path, letters: Letters
) -> None:
    def wrong(batch: pa.RecordBatch) -> Any:
        return batch.column("value").to_pylist()

    found = report(tmp_path, records(GOOD, GOOD), decode=wrong, target=TARGET)
    assert isinstance(found.failure, ColumnsRefused)
    assert "decode gave a list" in str(found.failure)
    assert letters.put == []


def test_function_that_gives_a_column_of_a_taken_name_is_refused_and_its_records_are_no_letters(
    tmp_path: Path, letters: Letters
) -> None:
    def with_offsets(batch: pa.RecordBatch) -> pa.Table:
        return pages(batch).append_column("offset", batch.column("offset"))

    def with_buckets(batch: pa.RecordBatch) -> pa.Table:
        return pages(batch).append_column("bucket", batch.column("offset"))

    for decode, upserts in ((with_offsets, None), (with_buckets, UpsertRule(("key",), None, 2))):
        found = report(tmp_path, records(GOOD, GOOD), decode=decode, target=TARGET, upserts=upserts)
        assert isinstance(found.failure, ColumnsRefused)
        assert "decode gives a column" in str(found.failure)
    assert letters.put == []


def test_function_that_gives_no_columns_is_refused_also_after_a_record_for_which_it_fails(
    tmp_path: Path, letters: Letters
) -> None:
    """The failure of the whole batch is the record's; what the function gives for the others is found in the parts."""

    def wrong(batch: pa.RecordBatch) -> Any:
        return [json.loads(value) for value in batch.column("value").to_pylist()]

    for target in (None, TARGET):
        found = report(tmp_path, records(GOOD, b"<html>", GOOD), decode=wrong, target=target)
        assert isinstance(found.failure, ColumnsRefused)
        assert "decode gave a list" in str(found.failure)
    assert letters.put == []


PAGES = pa.schema([("page", pa.string())])


@pytest.mark.parametrize("columns", [None, PAGES])
@pytest.mark.parametrize("upserts", [None, UpsertRule(("key",), None, 2)])
def test_record_with_a_value_of_another_type_is_a_letter(
    tmp_path: Path, letters: Letters, columns: pa.Schema | None, upserts: UpsertRule | None
) -> None:
    """Alone its column is made, as whole numbers, which the table's files do not go with."""
    batches = records(GOOD, b'{"page": 5}', GOOD), records(GOOD, GOOD, GOOD, b'{"page": 6}')
    found = report(tmp_path, *batches, target=TARGET, columns=columns, upserts=upserts)
    assert (found.failure, found.records_count, found.refused) == (None, 5, {"decode": 2})
    assert {file.schema.field("page").type for file in found.files} == {pa.string()}
    assert [message.value for message, _ in letters.put] == [b'{"page": 5}', b'{"page": 6}']
    assert "the column 'page' is string in the table, and int64 in the new rows" in str(letters.put[0][1])
    failure = report(tmp_path, *batches, columns=columns, upserts=upserts).failure
    assert isinstance(failure, RecordsRefused)
    assert str(failure).startswith(
        "decode failed for the record at offset 101 of clicks partition 3: pyarrow.lib.Arrow"
    )


def test_first_record_of_a_new_column_decides_no_type_that_the_others_do_not_have(
    tmp_path: Path, letters: Letters
) -> None:
    found = report(tmp_path, records(b'{"page": 5}', *[GOOD] * 6), target=TARGET)
    assert (found.failure, found.records_count) == (None, 6)
    assert [message.offset for message, _ in letters.put] == [100]


def test_type_that_all_records_have_is_refused_with_the_place_of_the_first(tmp_path: Path) -> None:
    numbers = records(*[b'{"page": 5}'] * 2)
    for batches, columns in (((numbers,), PAGES), ((records(GOOD), numbers), None)):
        failure = report(tmp_path, *batches, columns=columns).failure
        assert isinstance(failure, ColumnsRefused)
        assert "the column 'page' is string in the table, and int64 in the new rows" in str(failure)
        assert (failure.reason, failure.place) == ("columns", ("clicks", 3, 100))
        assert details_of(failure) == ["for 2 records together, the first at offset 100 of clicks partition 3"]


@pytest.mark.parametrize("count", [1, 3])
def test_records_of_a_batch_whose_columns_the_table_does_not_take_are_letters(
    tmp_path: Path, letters: Letters, count: int
) -> None:
    """Also of one record, as a slow topic has them: the load would end at it each time."""
    found = report(tmp_path, records(*[b'{"page": 5}'] * count), records(GOOD), target=TARGET, columns=PAGES)
    assert (found.failure, found.records_count, found.refused) == (None, 1, {"columns": count})
    assert [message.offset for message, _ in letters.put] == [*range(100, 100 + count)]
    for _, error in letters.put:
        assert isinstance(error, ColumnsRefused)
        assert "the column 'page' is string in the table, and int64 in the new rows" in str(error)


def test_record_that_changes_the_type_of_its_batch_is_the_only_letter(tmp_path: Path, letters: Letters) -> None:
    """Arrow makes one column of whole numbers and fractions, which is none of the table's."""
    batch = records(*[b'{"page": 5}'] * 6, b'{"page": 5.5}', b'{"page": 7}')
    found = report(tmp_path, batch, target=TARGET, columns=pa.schema([("page", pa.int64())]))
    assert (found.failure, found.records_count, found.refused) == (None, 7, {"columns": 1})
    assert [message.offset for message, _ in letters.put] == [106]


def test_record_for_which_a_function_gives_no_row_is_the_only_letter(tmp_path: Path, letters: Letters) -> None:
    def without_html(batch: pa.RecordBatch) -> pa.Table:
        values = [value for value in batch.column("value").to_pylist() if value != b"<html>"]
        return pa.table({"page": [json.loads(value)["page"] for value in values]})

    found = report(tmp_path, records(GOOD, b"<html>", GOOD, GOOD), decode=without_html, target=TARGET)
    assert (found.failure, found.records_count, found.refused) == (None, 3, {"columns": 1})
    [(message, error)] = letters.put
    assert message.offset == 101
    assert "decode gave 0 rows for 1 record" in str(error)


def test_value_that_is_too_wide_for_a_column_that_keeps_its_type_is_refused_with_its_place(
    tmp_path: Path, letters: Letters
) -> None:
    def numbers(batch: pa.RecordBatch) -> pa.Table:
        values = [int(value) for value in batch.column("value").to_pylist()]
        kind = pa.int32() if max(values) < 1 << 31 else pa.int64()
        return pa.table({"n": pa.array(values, kind)})

    columns = pa.schema([("n", pa.int32())])
    batches = records(b"1", b"2"), records(b"3", b"4", b"%d" % (1 << 40))
    failure = report(tmp_path, *batches, decode=numbers, columns=columns, widens=False).failure
    assert isinstance(failure, ColumnsRefused)
    assert "the column 'n' is int32 in the table, and int64 in the new rows; cast it in decode" in str(failure)
    assert "tables of this format keep a column's type" in str(failure)
    assert details_of(failure) == ["for 3 records together, the first at offset 100 of clicks partition 3"]
    found = report(tmp_path, *batches, decode=numbers, columns=columns, widens=False, target=TARGET)
    assert (found.failure, found.records_count, found.refused) == (None, 4, {"columns": 1})
    assert [message.offset for message, _ in letters.put] == [102]
    assert {file.schema.field("n").type for file in found.files} == {pa.int32()}
    # An Iceberg table's column is widened.
    found = report(tmp_path, *batches, decode=numbers, columns=columns)
    assert (found.failure, found.records_count) == (None, 5)


def test_values_of_a_new_column_are_stored_in_the_type_of_the_records_before(tmp_path: Path) -> None:
    """A table that keeps its columns' types takes the narrower ones, as it does when the column is its own."""

    def numbers(batch: pa.RecordBatch) -> pa.Table:
        values = [int(value) for value in batch.column("value").to_pylist()]
        kind = pa.int32() if max(values) < 1 << 31 else pa.int64()
        return pa.table({"n": pa.array(values, kind)})

    columns = pa.schema([("offset", pa.int64())])
    batches = records(b"%d" % (1 << 40)), records(b"1", b"2")
    found = report(tmp_path, *batches, decode=numbers, columns=columns, widens=False)
    assert (found.failure, found.records_count) == (None, 3)
    assert {file.schema.field("n").type for file in found.files} == {pa.int64()}


BY_PAGE = pa.schema([("topic", pa.string()), ("page", pa.string())])


@pytest.mark.parametrize("target", [None, TARGET])
def test_records_without_a_value_of_the_column_that_partitions_the_table_are_in_its_null_partition(
    tmp_path: Path, letters: Letters, target: LetterTarget | None
) -> None:
    """Their column has no type, so it is none of the rows."""
    batches = records(b'{"page": null}', b'{"page": null}'), records(GOOD, b'{"page": null}')
    by = ("topic", "page")
    found = report(tmp_path, *batches, columns=BY_PAGE, partition_by=by, target=target)
    assert (found.failure, found.records_count, found.refused) == (None, 4, {})
    assert {file.partition["page"]: file.rows_count for file in found.files} == {None: 3, "/jobs": 1}


def test_rows_without_a_column_that_partitions_the_table_are_refused(tmp_path: Path) -> None:
    failure = report(tmp_path, records(b'{"page": null}'), partition_by=("topic", "page")).failure
    assert isinstance(failure, ColumnsRefused)
    assert "the rows have no column 'page', which partitions the table" in str(failure)


def test_empty_text_that_a_table_takes_for_null_is_refused_with_its_place_where_it_partitions_the_table(
    tmp_path: Path, letters: Letters
) -> None:
    by = ("topic", "page")
    batch = records(GOOD, GOOD, b'{"page": ""}', GOOD)
    failure = report(tmp_path, batch, columns=BY_PAGE, partition_by=by, takes_empty_partitions=False).failure
    assert isinstance(failure, RecordsRefused)
    assert "offset 102 of clicks partition 3 has an empty text in 'page', which partitions the table" in str(failure)
    assert (failure.reason, failure.place) == ("columns", ("clicks", 3, 102))
    found = report(tmp_path, batch, columns=BY_PAGE, partition_by=by, takes_empty_partitions=False, target=TARGET)
    assert (found.failure, found.records_count, found.refused) == (None, 3, {"columns": 1})
    assert [message.offset for message, _ in letters.put] == [102]
    found = report(tmp_path, batch, columns=BY_PAGE, partition_by=by)
    assert (found.failure, found.records_count) == (None, 4)


def test_types_of_columns_that_partition_the_table_are_compared_as_they_are_stored(tmp_path: Path) -> None:
    columns = pa.schema([("topic", pa.large_string()), ("page", pa.string())])
    assert report(tmp_path, records(GOOD), columns=columns).failure is None


def test_value_of_a_partition_that_is_none_of_the_columns_type_is_refused_with_its_place(
    tmp_path: Path, letters: Letters
) -> None:
    """Its text would be in the commit, and no reader of the table could read it as a number."""
    columns = pa.schema([("topic", pa.string()), ("page", pa.int32())])
    batch = records(GOOD, b'{"page": "/"}')
    failure = report(tmp_path, batch, columns=columns, partition_by=("topic", "page")).failure
    assert isinstance(failure, ColumnsRefused)
    assert "the column 'page', which partitions the table, is int32 in it, and string in the new rows" in str(failure)
    assert details_of(failure) == ["for 2 records together, the first at offset 100 of clicks partition 3"]
    found = report(tmp_path, batch, columns=columns, partition_by=("topic", "page"), target=TARGET)
    assert (found.records_count, found.refused, found.files) == (0, {"columns": 2}, ())


def test_change_without_a_key_is_a_letter_of_an_upsert(tmp_path: Path, letters: Letters) -> None:
    def ids(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"id": [json.loads(value).get("id") for value in batch.column("value").to_pylist()]})

    batch = records(b'{"id": 1}', b'{"id": null}', b'{"id": 2}')
    found = report(tmp_path, batch, decode=ids, upserts=UpsertRule(("id",), None, 2), target=TARGET)
    assert (found.failure, found.records_count, found.refused) == (None, 2, {"change": 1})
    [(message, error)] = letters.put
    assert message.offset == 101
    # Alone its null has no type.
    assert "the rows have no column 'id'" in str(error)
    # The table knows the column's type.
    columns = pa.schema([("id", pa.int64())])
    found = report(tmp_path, batch, decode=ids, upserts=UpsertRule(("id",), None, 2), target=TARGET, columns=columns)
    assert (found.failure, found.refused) == (None, {"change": 1})
    assert "the record at offset 101 of clicks partition 3 has no 'id', which is of its key" in str(letters.put[-1][1])
    failure = report(tmp_path, batch, decode=ids, upserts=UpsertRule(("id",), None, 2)).failure
    assert isinstance(failure, RecordsRefused)
    assert "the record at offset 101 of clicks partition 3 has no 'id'" in str(failure)


def test_failure_of_a_task_comes_back_from_its_row_with_its_notes() -> None:
    failure = RecordsRefused("decode failed", hint="mend it", reason="decode")
    failure.add_note("Traceback ...")
    [row] = report_batch(TaskReport(failure=failure)).to_pylist()
    found = report_of(row["report"], row["schemas"]).failure
    assert isinstance(found, RecordsRefused)
    assert (str(found), found.reason, details_of(found)) == ("decode failed; mend it", "decode", ["Traceback ..."])
    assert isinstance(found, OttlaError)


@pytest.mark.parametrize(
    "failure",
    [
        DataLoss("clicks-0: offsets 3 to 7 are gone"),
        CorruptRecords("clicks", 0, 7, "its checksum is wrong"),
        ColumnsRefused("the column 'n' is string", hint="cast it"),
        FilesReplaced("files were replaced"),
    ],
)
def test_failure_of_each_kind_comes_back_from_its_row(failure: OttlaError) -> None:
    [row] = report_batch(TaskReport(failure=failure)).to_pylist()
    found = report_of(row["report"], row["schemas"]).failure
    assert type(found) is (LakeError if isinstance(failure, FilesReplaced) else type(failure))
    assert (str(found), found.hint) == (str(failure), failure.hint)


def test_batch_without_refusals_opens_no_connection(letters: Letters) -> None:
    taken = []
    with RefusedRecords(TARGET) as refused:
        refused.take(records(GOOD), None, lambda batch, times: taken.append(batch.num_rows))
    assert (taken, letters.is_closed) == ([1], False)

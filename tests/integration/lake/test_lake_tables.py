"""The operations of a load on tables of both formats, on the local disk and on S3; without Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import SetLocationUpdate

from ottla.runtime.clock import SystemClock
from ottla.spark.errors import LakeError
from ottla.spark.lake import iceberg_table
from ottla.spark.lake.compaction import compact, small_groups, vacuum
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.formats import DeltaTarget, IcebergTarget, open_table
from ottla.spark.lake.lake_table import ColumnBounds, CommitConflict, DataFile, LakeTable, TableCommit
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.rows import RowShape, partition_problem
from ottla.spark.lake.target import LakeTarget, parse_target

HOUR_US = 3_600_000_000
SHAPE = RowShape(kept=("value",))


class Place:
    """A table of one format, opened as often as a test wants."""

    def __init__(self, target: LakeTarget, kind: str, catalog: Path) -> None:
        self.files_target = target
        self.target: DeltaTarget | IcebergTarget = DeltaTarget(target)
        if kind == "iceberg":
            self.target = IcebergTarget("lake.events", target, {"type": "sql", "uri": f"sqlite:///{catalog}"})

    def open(self, partition_by: tuple[str, ...] = SHAPE.partition_by) -> LakeTable:
        return open_table(self.target, SHAPE.first_schema, partition_by)

    def write(self, *offsets: int, **extra: pa.Array) -> list[DataFile]:
        """Files with these offsets of a partition, each at the hour of its number."""
        batch = pa.RecordBatch.from_pydict(
            {
                "value": pa.array([b"%d" % offset for offset in offsets]),
                "topic": ["clicks"] * len(offsets),
                "partition": pa.array([0] * len(offsets), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array([offset * HOUR_US for offset in offsets], pa.timestamp("us", tz="UTC")),
            }
        )
        rows = SHAPE.rows(batch, {"clicks": "id"})
        for name, column in extra.items():
            rows = rows.append_column(name, column)
        files = LakeFiles(self.files_target, SHAPE.partition_by)
        files.add(rows)
        return files.close()

    def offsets(self) -> list[int]:
        """Of all rows, read by the format's own library."""
        return sorted(self.rows().column("offset").to_pylist())

    def rows(self) -> pa.Table:
        if isinstance(self.target, DeltaTarget):
            return DeltaTable(
                self.files_target.url, storage_options=self.files_target.storage_options
            ).to_pyarrow_table()
        table = self.open()
        return table._table.scan().to_arrow()  # type: ignore[attr-defined]  # Iceberg's


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, target: LakeTarget, tmp_path: Path) -> Place:
    return Place(target, request.param, tmp_path / "catalog.db")


def test_files_and_numbers_are_one_commit_that_a_new_opening_sees(place: Place) -> None:
    table = place.open()
    assert (table.number_of("a"), table.files()) == (None, [])
    version = publish(table, TableCommit(place.write(0, 1), numbers={"a": 2}, facts={"fact": "x"}), {"a": None})
    publish(table, TableCommit(numbers={"b": 7}), {"b": None})
    again = place.open()
    assert (again.number_of("a"), again.number_of("b"), again.number_of("c")) == (2, 7, None)
    assert again.version == version + 1
    assert again.partition_by == ("topic", "event_hour")
    assert place.offsets() == [0, 1]
    found = {file.partition["event_hour"]: file for file in again.files()}
    assert found["1970-01-01-01"].bounds["offset"] == ColumnBounds(0, 1, 1)
    assert found["1970-01-01-01"].rows_count == 1
    assert sorted(file.path for file in found.values()) == sorted(file.path for file in table.files())


def test_of_two_commits_with_the_same_numbers_the_second_is_refused(place: Place) -> None:
    first, second = place.open(), place.open()
    publish(first, TableCommit(place.write(0), numbers={"a": 1}), {"a": None})
    with pytest.raises(LakeError, match="another load of these topics"):
        publish(second, TableCommit(place.write(0), numbers={"a": 1}), {"a": None})
    assert place.offsets() == [0]


def test_the_second_commit_is_refused_also_when_it_adds_a_column(place: Place) -> None:
    first, second = place.open(), place.open()
    publish(first, TableCommit(place.write(0), numbers={"a": 1}), {"a": None})
    with pytest.raises(LakeError, match="another load of these topics"):
        publish(second, TableCommit(place.write(0, new=pa.array(["text"])), numbers={"a": 1}), {"a": None})
    assert place.offsets() == [0]
    assert "new" not in place.open().schema.names, "the column came with the commit"


def test_a_commit_on_stale_numbers_is_refused_even_when_the_table_was_reloaded(place: Place) -> None:
    first, second = place.open(), place.open()
    publish(first, TableCommit(place.write(0, 1), numbers={"a": 2}), {"a": None})
    second.refresh()
    with pytest.raises(LakeError, match="has 2 for a, this load was planned on 1"):
        publish(second, TableCommit(place.write(1), numbers={"a": 2}), {"a": 1})
    assert place.offsets() == [0, 1]


def test_removed_files_are_not_replaced_by_a_reloaded_table(place: Place) -> None:
    table = place.open()
    publish(table, TableCommit(place.write(0)), {})
    listed_at, old = table.version, table.files()
    publish(table, TableCommit(place.write(0), removed=old, is_same_data=True), {}, listed_at=listed_at)
    with pytest.raises(LakeError, match=r"files of .* were replaced meanwhile"):
        publish(table, TableCommit(place.write(0), removed=old, is_same_data=True), {}, listed_at=listed_at)
    assert place.offsets() == [0]


def test_commits_of_others_do_not_disturb(place: Place) -> None:
    first, second = place.open(), place.open()
    publish(first, TableCommit(place.write(0), numbers={"a": 1}), {"a": None})
    publish(second, TableCommit(place.write(1), numbers={"b": 1}), {"b": None})
    assert place.offsets() == [0, 1]
    assert (second.number_of("a"), second.number_of("b")) == (1, 1)


def test_a_commit_whose_answer_was_lost_is_found_and_not_repeated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.open()
    commit = table.commit

    def commit_and_lose_the_answer(wanted: TableCommit) -> int:
        commit(wanted)
        raise CommitConflict("the answer was lost")

    monkeypatch.setattr(table, "commit", commit_and_lose_the_answer)
    publish(table, TableCommit(place.write(0), numbers={"a": 1}), {"a": None})
    assert place.offsets() == [0]


def test_new_columns_are_added_and_another_type_is_refused(place: Place) -> None:
    table = place.open()
    publish(table, TableCommit(place.write(0)), {})
    publish(table, TableCommit(place.write(1, new=pa.array(["text"]))), {})
    assert {row["offset"]: row["new"] for row in place.rows().to_pylist()} == {0: None, 1: "text"}
    with pytest.raises(LakeError, match="'new' is string in the table, and int64 in the new rows"):
        publish(table, TableCommit(place.write(2, new=pa.array([5]))), {})
    assert place.offsets() == [0, 1]


NARROW = {
    "number": pa.array([1], pa.int32()),
    "ratio": pa.array([0.5], pa.float32()),
    "euro": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
    "visit": pa.array([{"page": "/", "at": 3}], pa.struct([("page", pa.string()), ("at", pa.int32())])),
}
WIDE = {
    "number": pa.array([1 << 40], pa.int64()),
    "ratio": pa.array([0.1], pa.float64()),
    "euro": pa.array([Decimal("12345678.25")], pa.decimal128(12, 2)),
    "visit": pa.array(
        [{"at": 1 << 40, "from": {"site": "x"}}],
        pa.struct([("at", pa.int64()), ("from", pa.struct([("site", pa.string())]))]),
    ),
}


def test_iceberg_table_gets_wider_types_and_new_fields_and_takes_narrower_rows(tmp_path: Path) -> None:
    place = Place(parse_target(tmp_path / "table"), "iceberg", tmp_path / "catalog.db")
    table = place.open()
    publish(table, TableCommit(place.write(0, **NARROW)), {})
    publish(table, TableCommit(place.write(1, **WIDE)), {})
    publish(table, TableCommit(place.write(2, **NARROW)), {})
    before = sorted(place.rows().select(["offset", *NARROW]).to_pylist(), key=lambda row: int(row["offset"]))
    narrow = {"number": 1, "ratio": 0.5, "euro": Decimal("1.25"), "visit": {"page": "/", "at": 3, "from": None}}
    wide = {"number": 1 << 40, "ratio": 0.1, "euro": Decimal("12345678.25")}
    assert before == [
        {"offset": 0, **narrow},
        {"offset": 1, **wide, "visit": {"page": None, "at": 1 << 40, "from": {"site": "x"}}},
        {"offset": 2, **narrow},
    ]
    # Files of both types become one.
    publish(table, TableCommit(place.write(0, **WIDE)), {})
    assert compact(place.target).files_before == 2
    assert {row["number"] for row in place.rows().to_pylist() if row["offset"] == 0} == {1, 1 << 40}
    with pytest.raises(LakeError, match="'number' is int64 in the table, and double in the new rows"):
        publish(table, TableCommit(place.write(3, number=pa.array([0.5]))), {})


def test_delta_table_takes_new_fields_of_a_struct_and_says_that_it_keeps_types(tmp_path: Path) -> None:
    place = Place(parse_target(tmp_path / "table"), "delta", tmp_path / "catalog.db")
    table = place.open()
    publish(table, TableCommit(place.write(0, **NARROW)), {})
    more = pa.array([{"at": 4, "from": "x"}], pa.struct([("at", pa.int32()), ("from", pa.string())]))
    publish(table, TableCommit(place.write(0, visit=more)), {})
    found = {str(row["visit"]) for row in place.rows().to_pylist()}
    assert found == {"{'page': '/', 'at': 3, 'from': None}", "{'page': None, 'at': 4, 'from': 'x'}"}
    assert compact(place.target).files_before == 2
    assert {str(row["visit"]) for row in place.rows().to_pylist()} == found
    for name in ("number", "ratio", "euro"):
        with pytest.raises(LakeError, match=f"'{name}' is .*; cast it in decode.*tables of this format keep a column"):
            publish(table, TableCommit(place.write(1, **{name: WIDE[name]})), {})
    assert place.offsets() == [0, 0]


def test_files_are_replaced_unless_another_writer_replaced_them(place: Place) -> None:
    table, other = place.open(), place.open()
    publish(table, TableCommit(place.write(0)), {})
    publish(table, TableCommit(place.write(0, 1), numbers={"a": 5}), {})
    small = [file for file in table.files() if file.partition["event_hour"] == "1970-01-01-00"]
    other.refresh()
    publish(table, TableCommit(place.write(0), removed=small, is_same_data=True), {})
    assert place.offsets() == [0, 1]
    with pytest.raises(LakeError, match=r"files of .* were replaced meanwhile"):
        publish(other, TableCommit(place.write(0), removed=small), {})
    assert place.offsets() == [0, 1]
    assert place.open().number_of("a") == 5


def test_small_files_become_few_and_rows_and_numbers_stay(place: Place) -> None:
    table = place.open()
    for first in (0, 2, 4):
        publish(table, TableCommit(place.write(first, first + 1, first + 1), numbers={"a": first}), {})
    publish(table, TableCommit(place.write(1, new=pa.array(["text"]))), {})
    before = place.rows().sort_by("offset")
    done = compact(place.target)
    assert (done.files_before, done.files_after, done.rows_count) == (2, 1, 3)
    table.refresh()
    assert (table.number_of("a"), len(table.files())) == (4, 6)
    after = place.rows().select(before.column_names).sort_by("offset")
    assert sorted(after.to_pylist(), key=str) == sorted(before.to_pylist(), key=str)
    assert compact(place.target).version is None


def test_files_of_dead_tasks_are_removed_when_they_are_old(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(place.open(), TableCommit(place.write(0)), {})
    (orphan,) = place.write(1)
    assert vacuum(place.target, dry_run=True) == []
    with pytest.raises(LakeError, match="at least 1"):
        vacuum(place.target, older_than_hours=0)
    found = place.open().vacuum(0, dry_run=True)
    assert found == [orphan.path]
    assert place.open().vacuum(0, dry_run=False) == [orphan.path]
    assert place.open().vacuum(0, dry_run=True) == []
    assert place.offsets() == [0]


def test_vacuum_of_an_iceberg_table_lets_snapshots_expire_after_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(parse_target(tmp_path / "table"), "iceberg", tmp_path / "catalog.db")
    for offset in range(3):
        publish(place.open(), TableCommit(place.write(offset)), {})
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: int(time.time() * 1_000) + 7_200_000)
    expire = iceberg_table.IcebergLake._expire
    attempts: list[int] = []

    def expire_after_a_load(table: iceberg_table.IcebergLake, before: datetime) -> None:
        attempts.append(table.version)
        if len(attempts) == 1:
            publish(place.open(), TableCommit(place.write(3)), {})
            raise CommitFailedException("branch main was changed")
        expire(table, before)

    monkeypatch.setattr(iceberg_table.IcebergLake, "_expire", expire_after_a_load)
    vacuum(place.target, older_than_hours=1)
    assert attempts == [3, 4]
    assert len(place.open()._table.snapshots()) == 1  # type: ignore[attr-defined]  # Iceberg's
    assert place.offsets() == [0, 1, 2, 3]


def test_files_with_deleted_rows_are_left_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.open()
    for offset in (0, 0, 1):
        publish(table, TableCommit(place.write(offset)), {})
    files = [replace(file, has_deletes="-00" in file.path) for file in table.files()]
    assert [len(group) for group in small_groups(table.files(), 1 << 20)] == [2]
    assert small_groups(files, 1 << 20) == []
    monkeypatch.setattr(table, "files", lambda: files)
    small = [file for file in files if file.has_deletes]
    with pytest.raises(LakeError, match="rows of them deleted"):
        publish(table, TableCommit(place.write(0), removed=small, is_same_data=True), {})
    assert place.offsets() == [0, 0, 1]


def test_a_missing_table_is_reported(place: Place) -> None:
    with pytest.raises(LakeError, match="there is no table"):
        compact(place.target)


def test_a_table_that_is_partitioned_otherwise_is_refused(place: Place) -> None:
    place.open()
    with pytest.raises(LakeError, match="is partitioned by topic, event_hour; give partition_by"):
        place.open(("topic",))


def test_types_of_partition_columns_are_those_that_the_table_reads(place: Place) -> None:
    known = SHAPE.first_schema.append(pa.field("page", pa.int32()))
    table = open_table(place.target, known, ("topic", "page"))
    by = ("topic", "page")
    assert partition_problem(table.schema, known, by) is None
    assert partition_problem(table.schema, pa.schema([("page", pa.int16()), ("topic", pa.large_string())]), by) is None
    assert partition_problem(table.schema, pa.schema([("other", pa.string())]), by) is None
    # Of these a value may be one of the table's: the tasks look at each.
    for kind in (pa.string(), pa.int64()):
        assert partition_problem(table.schema, pa.schema([("page", kind)]), by) is None
    for kind in (pa.date32(), pa.bool_(), pa.float64()):
        problem = partition_problem(table.schema, pa.schema([("page", kind)]), by)
        assert problem == f"the column 'page', which partitions the table, is int32 in it, and {kind} in the new rows"


def test_table_is_created_by_columns_whose_types_are_known(place: Place) -> None:
    schema = SHAPE.first_schema
    with pytest.raises(LakeError, match="no table yet, and the type of its partition column 'page' is not known"):
        open_table(place.target, schema, ("page",))
    known = schema.append(pa.field("page", pa.int32()))
    assert open_table(place.target, known, ("page",)).partition_by == ("page",)
    # Where the table is, its own type counts.
    assert open_table(place.target, schema, ("page",)).schema.field("page").type == pa.int32()


def test_an_empty_text_partitions_an_iceberg_table_and_is_refused_by_delta(place: Place) -> None:
    table = place.open()
    assert table.takes_empty_partitions is not isinstance(place.target, DeltaTarget)
    files = [replace(file, partition={**file.partition, "topic": ""}) for file in place.write(0)]
    if isinstance(place.target, DeltaTarget):
        with pytest.raises(LakeError, match="an empty text partitions the table by 'topic'"):
            publish(table, TableCommit(files), {})
        return
    publish(table, TableCommit(files), {})
    assert [file.partition["topic"] for file in place.open().files()] == [""]


def test_an_iceberg_tables_metadata_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_table, "_MANIFESTS_MAX", 5)
    place = Place(parse_target(tmp_path / "events"), "iceberg", tmp_path / "catalog.db")
    table = place.open()
    for number in range(25):
        publish(table, TableCommit(place.write(number), numbers={"a": number}), {})
    assert len(list(tmp_path.rglob("*.metadata.json"))) <= 21
    theirs = table._table  # type: ignore[attr-defined]  # Iceberg's
    assert len(theirs.snapshots()) == 25
    manifests = theirs.current_snapshot().manifests(theirs.io)
    assert len(manifests) <= 5
    data, lists = set(tmp_path.rglob("*.parquet")), set(tmp_path.rglob("*.avro"))
    removed = table.vacuum(0, dry_run=False)
    assert {path.rpartition(".")[2] for path in removed} == {"avro"}
    assert set(tmp_path.rglob("*.parquet")) == data
    left = set(tmp_path.rglob("*.avro"))
    assert (len(left), len(lists - left)) == (1 + len(manifests), len(removed))
    again = place.open()
    assert len(again._table.snapshots()) == 1  # type: ignore[attr-defined]  # Iceberg's
    assert again.number_of("a") == 24
    assert place.offsets() == list(range(25))
    publish(again, TableCommit(place.write(25)), {})
    assert place.offsets() == list(range(26))


def test_vacuum_keeps_files_that_an_iceberg_table_names_by_another_form_of_its_path(tmp_path: Path) -> None:
    place = Place(parse_target(tmp_path / "events"), "iceberg", tmp_path / "catalog.db")
    publish(place.open(), TableCommit(place.write(0)), {})
    theirs = place.open()._table  # type: ignore[attr-defined]  # Iceberg's
    another_form = SetLocationUpdate(location=theirs.location().replace("file:///", "file:/"))
    theirs.catalog.commit_table(theirs, (), (another_form,))
    publish(place.open(), TableCommit(place.write(1)), {})
    assert [path for path in place.open().vacuum(0, dry_run=False) if path.endswith(".parquet")] == []
    assert place.offsets() == [0, 1]

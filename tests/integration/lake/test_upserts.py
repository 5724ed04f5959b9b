"""Upserts into tables of both formats, on the local disk and on S3, without Spark: the rows are those of a fold."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from ottla.spark.errors import LakeError
from ottla.spark.lake import applying
from ottla.spark.lake.applying import BucketTask
from ottla.spark.lake.change_files import ChangeFiles, ChangeForm
from ottla.spark.lake.changes import BUCKET, UpsertRule
from ottla.spark.lake.compaction import compact
from ottla.spark.lake.files import LakeFiles
from ottla.spark.lake.formats import DeltaTarget, IcebergTarget, open_table
from ottla.spark.lake.lake_table import DataFile, LakeTable, TableCommit
from ottla.spark.lake.rows import RowShape
from ottla.spark.lake.target import LakeTarget, parse_target
from ottla.spark.lake.tasks import Stage, TaskReport, no_observer
from ottla.spark.lake.upserts import Upserted, Upserter, first_schema

SHAPE = RowShape(kept=("timestamp",), partition_by=(BUCKET,))
BY_LOG = UpsertRule(("id",), buckets=4)
BY_SEQUENCE = UpsertRule(("id",), "at", buckets=4)
HISTORY = UpsertRule(("id",), "at", buckets=4, keeps_history=True)
# Id, sequence, name; without a name it is a tombstone.
Change = tuple[int, int | None, str | None]
State = dict[int, tuple[int | None, str | None]]


def folded(state: State, changes: Iterable[Change]) -> State:
    state = dict(state)
    for key, at, name in changes:
        known = state[key][0] if key in state else None
        if at is None or known is None or at >= known:
            state[key] = (known if at is None else at), name
    return state


def in_this_process(
    run: Callable[[Iterable[BucketTask]], Iterator[TaskReport]], tasks: Sequence[BucketTask]
) -> list[TaskReport]:
    reports = list(run(tasks))
    for report in reports:
        if report.failure is not None:
            raise report.failure
    return reports


class Place:
    """A table of one format and rule, and a log that grows."""

    def __init__(self, location: LakeTarget, kind: str, catalog: Path, rule: UpsertRule) -> None:
        self.location, self.rule, self.form = location, rule, ChangeForm.CHANGES
        self.target: DeltaTarget | IcebergTarget = DeltaTarget(location)
        if kind == "iceberg":
            self.target = IcebergTarget("lake.people", location, {"type": "sql", "uri": f"sqlite:///{catalog}"})
        self.next_offset = 0

    def open(self) -> LakeTable:
        return open_table(self.target, first_schema(SHAPE.first_schema, self.rule), self.rule.partition_by)

    def change_files(self, changes: Sequence[Change], **extra: pa.Array) -> list[DataFile]:
        """Of one task."""
        count = len(changes)
        batch = pa.RecordBatch.from_pydict(
            {
                "value": pa.array([None if name is None else b"x" for _, _, name in changes], pa.binary()),
                "topic": ["people"] * count,
                "partition": pa.array([0] * count, pa.int32()),
                "offset": pa.array(range(self.next_offset, self.next_offset + count), pa.int64()),
                "timestamp": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            }
        )
        self.next_offset += count
        rows = SHAPE.rows(batch, {"people": "id"})
        rows = rows.append_column("id", pa.array([key for key, _, _ in changes], pa.int64()))
        rows = rows.append_column("at", pa.array([at for _, at, _ in changes], pa.int64()))
        rows = rows.append_column("name", pa.array([name for _, _, name in changes], pa.string()))
        for name, column in extra.items():
            rows = rows.append_column(name, column)
        files = ChangeFiles(LakeFiles(self.location, (BUCKET,)), self.rule, form=self.form)
        files.add(rows, batch.column("value"))
        return files.close()

    def upserter(self, at: Callable[[Stage], None] = no_observer) -> Upserter:
        return Upserter(in_this_process, self.location, self.rule, 1 << 30, at, self.form)

    def commit(self, table: LakeTable, files: Sequence[DataFile]) -> Upserted:
        number = table.number_of("log")
        commit = TableCommit(numbers={"log": self.next_offset})
        return self.upserter().commit(table, files, commit, {"log": number})

    def rows(self) -> list[dict[str, object]]:
        """Read by the format's own library."""
        if isinstance(self.target, DeltaTarget):
            options = self.location.storage_options
            found = DeltaTable(self.location.url, storage_options=options).to_pyarrow_table()
        else:
            found = self.open()._table.scan().to_arrow()  # type: ignore[attr-defined]  # Iceberg's
        listed: list[dict[str, object]] = found.to_pylist()
        return listed

    def state(self) -> State:
        rows = self.rows()
        state = {row["id"]: (row["at"], row["name"]) for row in rows}
        assert len(state) == len(rows), "a key has two rows"
        return state  # type: ignore[return-value]  # columns of these types

    def parquet_files(self) -> int:
        """That are there, of the table or not."""
        system = self.location.file_system()
        found = system.get_file_info(fs.FileSelector(self.location.root, recursive=True, allow_not_found=True))
        return sum(info.path.endswith(".parquet") for info in found)


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def place(kind: str, target: LakeTarget, tmp_path: Path) -> Place:
    return Place(target, kind, tmp_path / "catalog.db", BY_LOG)


def random_changes(chance: random.Random, count: int, *, has_sequence: bool) -> list[Change]:
    return [
        (
            chance.randrange(30),
            chance.randrange(100) if has_sequence and chance.random() < 0.9 else None,
            None if chance.random() < 0.2 else f"name {number}",
        )
        for number in range(count)
    ]


def present(state: State) -> State:
    return {key: found for key, found in state.items() if found[1] is not None}


def test_changes_in_the_order_of_their_log_leave_the_last_row_of_each_key(place: Place) -> None:
    chance, table = random.Random(7), place.open()
    state: State = {}
    for _ in range(4):
        parts = [random_changes(chance, 15, has_sequence=False) for _ in range(2)]
        place.commit(table, [file for part in parts for file in place.change_files(part)])
        state = folded(state, [change for part in parts for change in part])
        assert place.state() == present(state)
    assert place.open().number_of("log") == 120


def test_changes_with_sequences_leave_the_row_of_the_greatest_and_the_deleted_marked(kind: str, tmp_path: Path) -> None:
    place = Place(parse_target(tmp_path / "table"), kind, tmp_path / "catalog.db", BY_SEQUENCE)
    chance, table = random.Random(8), place.open()
    state: State = {}
    for _ in range(5):
        parts = [random_changes(chance, 15, has_sequence=True) for _ in range(2)]
        place.commit(table, [file for part in parts for file in place.change_files(part)])
        state = folded(state, [change for part in parts for change in part])
        assert place.state() == state
        assert {row["id"] for row in place.rows() if row["deleted"]} == state.keys() - present(state).keys()


@pytest.mark.parametrize("rule", [BY_LOG, BY_SEQUENCE])
def test_files_of_changes_that_only_add_rows_become_the_tables_and_the_rows_are_those_of_a_fold(
    kind: str, tmp_path: Path, rule: UpsertRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "KEPT_FILE_BYTES_MIN", 1)
    place = Place(parse_target(tmp_path / "table"), kind, tmp_path / "catalog.db", rule)
    place.form = ChangeForm.ROWS
    chance, table = random.Random(9), place.open()
    state: State = {}
    kept: list[bool] = []
    for _ in range(12):
        # Of so many keys that some buckets have a key twice, and others none.
        parts = [
            [
                (chance.randrange(60), at, name)
                for _, at, name in random_changes(chance, 4, has_sequence=rule is BY_SEQUENCE)
            ]
            for _ in range(2)
        ]
        files = [file for part in parts for file in place.change_files(part)]
        place.commit(table, files)
        state = folded(state, [change for part in parts for change in part])
        assert place.state() == (state if rule is BY_SEQUENCE else present(state))
        paths = {file.path for file in table.files()}
        kept += [file.path in paths for file in files]
    assert kept.count(True) > 10
    assert kept.count(False) > 10


def test_a_snapshot_is_written_once(place: Place) -> None:
    place.form = ChangeForm.ROWS
    table = place.open()
    files = place.change_files([(key, None, "new") for key in range(40)])
    done = place.commit(table, files)
    assert {file.path for file in table.files()} == {file.path for file in files}
    assert done.mostly_adds
    assert place.parquet_files() == len(files)
    assert place.state() == dict.fromkeys(range(40), (None, "new"))
    again = place.commit(table, place.change_files([(key, None, "again") for key in range(40)]))
    assert not again.mostly_adds
    assert place.state() == dict.fromkeys(range(40), (None, "again"))


def test_small_files_of_several_tasks_become_one(place: Place) -> None:
    place.form = ChangeForm.ROWS
    table = place.open()
    files = [
        file for first in (0, 20) for file in place.change_files([(key, None, "x") for key in range(first, first + 20)])
    ]
    done = place.commit(table, files)
    assert (len(files), done.files_count, place.parquet_files()) == (8, 4, 4)
    assert done.mostly_adds
    assert place.state() == dict.fromkeys(range(40), (None, "x"))


def test_files_that_may_be_the_tables_stay_when_the_commit_fails(place: Place) -> None:
    place.form = ChangeForm.ROWS
    first, second = place.open(), place.open()
    place.commit(first, place.change_files([(1, None, "a")]))
    files = place.change_files([(2, None, "b")])
    with pytest.raises(LakeError, match="another load of these topics was committed meanwhile"):
        place.commit(second, files)
    # An answer may be lost after the commit: a vacuum removes them.
    assert place.parquet_files() == 1 + len(files)
    assert place.state() == {1: (None, "a")}


def test_a_history_has_each_version_with_its_end(kind: str, tmp_path: Path) -> None:
    place = Place(parse_target(tmp_path / "table"), kind, tmp_path / "catalog.db", HISTORY)
    table = place.open()
    place.commit(table, place.change_files([(1, 5, "a"), (1, 7, "b"), (2, 5, "x"), (3, 5, "y")]))
    before = {file.path for file in table.files() if file.partition["current"] == "false"}
    place.commit(table, place.change_files([(1, 6, "late"), (1, 9, "c"), (2, 8, None), (3, 5, "y again")]))
    rows = place.rows()
    assert sorted((row["id"], row["valid_from"], row["valid_to"], row["name"], row["current"]) for row in rows) == [
        (1, 5, 7, "a", False),
        (1, 7, 9, "b", False),
        (1, 9, None, "c", True),
        (2, 5, 8, "x", False),
        (2, 8, 8, None, True),
        (3, 5, None, "y again", True),
    ]
    assert [row["id"] for row in rows if row["deleted"]] == [2]
    # What is past is never written again.
    assert before < {file.path for file in table.files()}


def test_late_and_repeated_changes_write_no_file(kind: str, tmp_path: Path) -> None:
    place = Place(parse_target(tmp_path / "table"), kind, tmp_path / "catalog.db", BY_SEQUENCE)
    table = place.open()
    place.commit(table, place.change_files([(1, 5, "new"), (2, 5, None)]))
    before = {file.path for file in table.files()}
    place.commit(table, place.change_files([(1, 4, "late"), (2, 4, "late"), (1, 3, None)]))
    assert {file.path for file in table.files()} == before
    assert place.state() == {1: (5, "new"), 2: (5, None)}
    assert table.number_of("log") == 5


def test_files_without_a_changed_key_stay_as_they_are(place: Place) -> None:
    table = place.open()
    place.commit(table, place.change_files([(key, None, "old") for key in range(20)]))
    before = {file.path for file in table.files()}
    place.commit(table, place.change_files([(3, None, "new")]))
    after = {file.path for file in table.files()}
    assert len(before) == len(after) == 4
    assert len(before & after) == 3


def test_files_of_changes_are_gone_after_the_commit(place: Place) -> None:
    table = place.open()
    place.commit(table, place.change_files([(key, None, "x") for key in range(9)]))
    assert place.parquet_files() == len(table.files())


def test_a_new_column_is_null_in_rows_that_stay(place: Place) -> None:
    table = place.open()
    place.commit(table, place.change_files([(1, None, "a"), (2, None, "b")]))
    place.commit(table, place.change_files([(2, None, "c")], city=pa.array(["Ljubljana"])))
    assert {row["id"]: row["city"] for row in place.rows()} == {1: None, 2: "Ljubljana"}
    with pytest.raises(LakeError, match="'city' is string in the table, and int64 in the new rows"):
        place.commit(table, place.change_files([(2, None, "d")], city=pa.array([7])))
    assert place.state() == {1: (None, "a"), 2: (None, "c")}


def test_of_two_upserts_at_once_the_second_is_refused_also_when_their_topics_differ(place: Place) -> None:
    first, second = place.open(), place.open()
    place.commit(first, place.change_files([(1, None, "a")]))
    with pytest.raises(LakeError, match="another load of these topics was committed meanwhile"):
        place.upserter().commit(
            second, place.change_files([(1, None, "b")]), TableCommit(numbers={"other log": 1}), {"other log": None}
        )
    assert place.state() == {1: (None, "a")}


def test_changes_are_applied_again_when_a_compaction_replaced_the_files(place: Place) -> None:
    table = place.open()
    for first in (0, 10):
        place.commit(table, place.change_files([(key, None, "old") for key in range(first, first + 10)]))
    compactions: list[int] = []

    def compact_once(stage: Stage) -> None:
        if stage is Stage.COMMITTING and not compactions:
            compactions.append(compact(place.target).files_before)

    files = place.change_files([(3, None, "new"), (13, None, None)])
    place.upserter(compact_once).commit(table, files, TableCommit(), {})
    assert compactions[0] > 0
    expected = {key: (None, "new" if key == 3 else "old") for key in range(20) if key != 13}
    assert place.state() == expected


def test_a_table_of_another_rule_is_refused(place: Place) -> None:
    place.commit(place.open(), place.change_files([(1, None, "a")]))
    place.rule = UpsertRule(("id",), buckets=5)
    with pytest.raises(LakeError, match="not upserted by the keys id, no column for their order and 5 buckets"):
        place.commit(place.open(), place.change_files([(1, None, "b")]))
    assert place.state() == {1: (None, "a")}

"""A Delta table, through delta-rs: a load's numbers are its application transactions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from ottla.runtime.clock import SystemClock
from ottla.runtime.installation import install_command
from ottla.spark.errors import ColumnsRefused, LakeError
from ottla.spark.lake.columns import TIMESTAMP
from ottla.spark.lake.delta_appends import open_delta
from ottla.spark.lake.files import value_text
from ottla.spark.lake.lake_table import ColumnBounds, CommitConflict, CommitFacts, DataFile, TableCommit
from ottla.spark.lake.target import LakeTarget

try:
    from deltalake import CommitProperties, DeltaTable, Field, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"loads need the package deltalake: {install_command('lake')}", name=error.name) from None

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# More often than Delta's 100 commits: a load that runs all day commits every few seconds.
_CONFIGURATION: Final = {"delta.checkpointInterval": "50"}


class DeltaLake:
    """A `LakeTable`."""

    def __init__(self, target: LakeTarget, first_schema: pa.Schema | None, partition_by: Sequence[str] = ()) -> None:
        """Without `first_schema` the table must be there."""
        self._target = target
        if first_schema is not None:
            self._table = open_delta(target, first_schema, partition_by, _CONFIGURATION)
        else:
            self.refresh()

    @property
    def name(self) -> str:
        return self._target.url

    @property
    def location(self) -> LakeTarget:
        return self._target

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self._table)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    def refresh(self) -> None:
        self._table = _done(DeltaTable, self._target.url, storage_options=self._target.storage_options)

    def number_of(self, app_id: str) -> int | None:
        return self._table.transaction_version(app_id)

    @property
    def widens_columns(self) -> bool:
        """deltalake neither writes nor reads Delta's feature typeWidening."""
        return False

    @property
    def takes_empty_partitions(self) -> bool:
        """Delta's protocol has an empty text for null."""
        return False

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        if fields:
            _done(self._table.alter.add_columns, [Field.from_arrow(field) for field in fields])
            self.refresh()

    def commit(self, commit: TableCommit) -> int:
        is_change = not commit.is_same_data
        now_ms = SystemClock().now_ms()
        actions: list[AddAction | RemoveAction] = [_add(file, self.schema, now_ms, is_change) for file in commit.added]
        actions += [_remove(file, now_ms, is_change) for file in commit.removed]
        properties = CommitProperties(
            custom_metadata=dict(commit.facts),
            # A commit after a conflict is decided again, by its numbers; the library does not know how.
            max_commit_retries=0,
            app_transactions=[Transaction(app_id, number) for app_id, number in commit.numbers.items()],
        )
        _done(
            self._table.create_write_transaction,
            actions,
            "append",
            self._table.schema(),
            list(self.partition_by),
            commit_properties=properties,
        )
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise LakeError(
                f"the commit is in {self.name}, but the table could not be read after it: {error}",
                hint="run it again: a load continues after that commit",
            ) from error
        return self._table.version()

    def newest_facts(self, commits_max: int) -> list[CommitFacts]:
        return [
            CommitFacts(entry["timestamp"], {name: text for name, text in entry.items() if isinstance(text, str)})
            for entry in _done(self._table.history, commits_max)
        ]

    def vacuum(self, older_than_hours: float, *, dry_run: bool) -> list[str]:
        # `full`: files that the log has never named, too, which are those of dead tasks.
        return _done(
            self._table.vacuum,
            math.ceil(older_than_hours),
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=True,
        )

    def files(self) -> list[DataFile]:
        actions = pa.table(_done(self._table.get_add_actions, flatten=True)).to_pylist()
        partition_by, schema, deleted = self.partition_by, self.schema, _done(self._names_with_deletes)
        return [_file(action, partition_by, schema, deleted) for action in actions]

    def _names_with_deletes(self) -> frozenset[str]:
        """The names, without directories, of files that have a deletion vector."""
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return frozenset()
        vectors = pa.RecordBatchReader.from_stream(self._table.deletion_vectors())
        return frozenset(_name(path) for batch in vectors for path in batch.column("filepath").to_pylist())


def arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _done(call: Callable[..., T], *arguments: object, **named: object) -> T:
    """The call's result.  Raises `CommitConflict`, `LakeError`."""
    try:
        return call(*arguments, **named)
    except CommitFailedError as error:
        raise CommitConflict(str(error)) from error
    except TableNotFoundError as error:
        # Its other lines are those of the system's error.
        reason = str(error).partition("\n")[0]
        raise LakeError(f"there is no table: {reason}", hint="load into it first") from error
    except (DeltaError, OSError) as error:
        raise LakeError(f"the table could not be read or changed: {error}") from error


def _add(file: DataFile, schema: pa.Schema, now_ms: int, is_change: bool) -> AddAction:
    for name, value in file.partition.items():
        if value == "":
            raise ColumnsRefused(
                f"an empty text partitions the table by {name!r}, and Delta tables take it for null",
                hint="let decode give null or another text, or load into an Iceberg table",
            )
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition),
        modification_time=now_ms,
        data_change=is_change,
        stats=json.dumps(_statistics(file)),
    )


def _statistics(file: DataFile) -> dict[str, object]:
    least, most = {}, {}
    for name, bounds in file.bounds.items():
        if bounds.least is not None and bounds.most is not None:
            kind = file.schema.field(name).type
            texts = (_statistic(kind, bounds.least), _statistic(kind, bounds.most))
            if texts[0] is not None and texts[1] is not None:
                least[name], most[name] = texts
    nulls = {name: bounds.nulls_count for name, bounds in file.bounds.items()}
    return {"numRecords": file.rows_count, "minValues": least, "maxValues": most, "nullCount": nulls}


def _statistic(kind: pa.DataType, number: int) -> object:
    """None for times and days beyond the years 1 to 9999."""
    try:
        if kind == TIMESTAMP:
            moment = _EPOCH + timedelta(microseconds=number)
            return moment.strftime(f"{moment.year:04d}-%m-%dT%H:%M:%S.%fZ")
        if pa.types.is_date(kind):
            return (date(1970, 1, 1) + timedelta(days=number)).isoformat()
    except OverflowError:
        return None
    return number


def _remove(file: DataFile, now_ms: int, is_change: bool) -> RemoveAction:
    return RemoveAction(file.path, is_change, now_ms, size=file.size_bytes, partition_values=dict(file.partition))


def _name(path: str) -> str:
    return unquote(path).rpartition("/")[2]


def _file(
    action: Mapping[str, object], partition_by: Sequence[str], schema: pa.Schema, deleted: Container[str]
) -> DataFile:
    values = {name: action[f"partition.{name}"] for name in partition_by}
    size_bytes, rows_count = action["size_bytes"], action["num_records"]
    assert isinstance(size_bytes, int)
    return DataFile(
        path=unquote(str(action["path"])),
        partition={name: value_text(value) for name, value in values.items()},
        size_bytes=size_bytes,
        rows_count=rows_count if isinstance(rows_count, int) else 0,
        schema=pa.schema([field for field in schema if field.name not in partition_by]),
        bounds={
            "offset": ColumnBounds(0, _whole(action.get("min.offset")), _whole(action.get("max.offset"))),
        },
        has_deletes=_name(str(action["path"])) in deleted,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None

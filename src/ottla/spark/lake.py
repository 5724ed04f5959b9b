"""Topics into a Delta table, partitioned by topic and event hour: data and offsets in one commit.

Tasks write Parquet files with unique names; the driver then commits, at once, the files and how far each partition was
read (Delta's own application transactions: one for each partition, whose version is its next offset).  A load that dies
before its commit leaves files that no reader sees, and the next one reads the same records again; so every record is in
the table once.  Of two loads at the same time, the second to commit is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Row, SparkSession

from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.spark.cluster_view import ClusterView
from ottla.spark.errors import SparkUserError
from ottla.spark.lake_files import PARTITION_COLUMNS, REPORT_DDL, TABLE_SCHEMA, write_files
from ottla.spark.offset_spec import Offsets, to_dict
from ottla.spark.read_options import parse_read_options
from ottla.spark.registration import register_source

try:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("loads need the package deltalake: pip install 'ottla[demo]'", name=error.name) from None


class LakeError(SparkUserError):
    """A load could not be made; the table is as it was before."""


@dataclass(frozen=True, slots=True)
class LakeLoad:
    """What one load added: `next_offsets` is where the next one begins; `table_version` None when nothing was there."""

    rows_count: int
    files_count: int
    next_offsets: Mapping[TopicPartition, int]
    table_version: int | None


def load_topic_to_lake(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    target_path: str | Path,
    *,
    event_time: str = "timestamp",
    options: Mapping[str, str] | None = None,
) -> LakeLoad:
    """Append what the topics have and the table has not; the table is made when there is none.

    `event_time` is a Spark SQL expression over the record's columns that gives a timestamp; where it is null, the
    record's own timestamp counts.  `options` are further options of the source.
    Columns: key, value, partition, offset, timestamp, event_time, and the table's partitions topic and event_hour (UTC,
    as in 2011-06-12-09; "out-of-range" beyond the years 1 to 9999).
    The target is a local path, so Spark must run on this machine.
    Raises `LakeError`, and what the source raises.
    """
    root = Path(target_path).absolute()
    master = spark.sparkContext.master or ""
    if not master.startswith("local"):
        raise LakeError(f"the table {root} is on this machine, Spark runs on {master}", hint="use a local session")
    names = [topics] if isinstance(topics, str) else list(topics)
    source = {**(options or {}), "kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(names)}
    table = _open_table(root)
    plan = _plan(table, source)
    if plan.is_empty:
        return LakeLoad(0, 0, plan.end, None)
    register_source(spark)
    files = _write(spark, source, plan, event_time, root)
    return _commit(table, plan, files)


@dataclass(frozen=True, slots=True)
class _Plan:
    cluster_id: str
    first: Offsets
    end: Offsets

    @property
    def is_empty(self) -> bool:
        return self.first == self.end

    def app_id(self, place: TopicPartition) -> str:
        """Names the application transaction of a partition; another cluster's topic of that name is another one."""
        return _app_id(self.cluster_id, place)


def _app_id(cluster_id: str, place: TopicPartition) -> str:
    return f"ottla/{cluster_id}/{place.topic}/{place.partition}"


def _open_table(root: Path) -> DeltaTable:
    if not DeltaTable.is_deltatable(str(root)):
        DeltaTable.create(str(root), TABLE_SCHEMA, mode="ignore", partition_by=list(PARTITION_COLUMNS))
    return DeltaTable(str(root))


def _plan(table: DeltaTable, source: Mapping[str, str]) -> _Plan:
    with ClusterView(parse_read_options(source, is_stream=False)) as view:
        places = view.partitions()
        cluster_id = view.cluster_id
        loaded = {place: table.transaction_version(_app_id(cluster_id, place)) for place in places}
        new = [place for place, offset in loaded.items() if offset is None]
        first = {place: offset for place, offset in loaded.items() if offset is not None} | view.earliest(new)
        # Whether the records after the last load are still there: a gap must not pass unseen.
        first = view.checked("startingOffsets", first)
        return _Plan(cluster_id, first, view.latest(places))


def _write(spark: SparkSession, source: Mapping[str, str], plan: _Plan, event_time: str, root: Path) -> list[Row]:
    bounds = {
        "startingOffsets": json.dumps(to_dict(plan.first)),
        "endingOffsets": json.dumps(to_dict(plan.end)),
    }
    frame = spark.read.format("ottla").options(**{**source, **bounds}).load()
    rows = frame.selectExpr(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        f"coalesce(CAST(({event_time}) AS TIMESTAMP), timestamp) AS event_time",
    )
    return rows.mapInArrow(partial(_write_files_of, str(root)), REPORT_DDL).collect()


def _write_files_of(root: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return write_files(root, batches)


def _commit(table: DeltaTable, plan: _Plan, files: list[Row]) -> LakeLoad:
    """Everything in one commit, which fails when another load of these partitions came first."""
    now_ms = SystemClock().now_ms()
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            path=file["path"],
            size=file["size_bytes"],
            partition_values={"topic": file["topic"], "event_hour": file["event_hour"]},
            modification_time=now_ms,
            data_change=True,
            stats=json.dumps({"numRecords": file["rows_count"]}),
        )
        for file in files
    ]
    moved = [place for place in plan.end if plan.end[place] > plan.first[place]]
    properties = CommitProperties(
        custom_metadata={"ottla.offsets": json.dumps(to_dict(plan.end))},
        app_transactions=[Transaction(plan.app_id(place), plan.end[place]) for place in moved],
    )
    try:
        table.create_write_transaction(
            actions, "append", table.schema(), list(PARTITION_COLUMNS), commit_properties=properties
        )
    except CommitFailedError as error:
        raise LakeError(
            f"another load of these topics was committed meanwhile: {error}", hint="run this one again"
        ) from error
    table.update_incremental()
    return LakeLoad(sum(file["rows_count"] for file in files), len(files), plan.end, table.version())

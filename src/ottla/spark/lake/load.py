"""Topics into a Delta table, partitioned by topic and event hour: data and offsets in one commit.

Tasks write Parquet files with unique names; the driver then commits, at once, the files and the next offset of each
partition (`lake_progress`).  A load that fails before its commit leaves files that no reader sees, and the next one
reads the same records again; so every record is in the table once.  Of two loads at the same time, the second to commit
is refused.
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
from ottla.model.uuid_text import uuid_to_text
from ottla.runtime.clock import SystemClock
from ottla.spark.errors import LakeError
from ottla.spark.lake.files import PARTITION_COLUMNS, REPORT_DDL, TABLE_SCHEMA, write_files
from ottla.spark.lake.progress import Progress, TopicKeys, progress_of, versions_to_commit
from ottla.spark.options.offset_spec import Offsets, to_dict
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.registration import register_source
from ottla.spark.source.cluster_view import ClusterView

try:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("loads need the package deltalake: pip install 'ottla[demo]'", name=error.name) from None


__all__ = ["LakeError", "LakeLoad", "load_topic_to_lake"]


@dataclass(frozen=True, slots=True)
class LakeLoad:
    """The result of one load: `next_offsets` is where the next one begins; `table_version` None without a commit.

    `recreated_topics` were deleted and recreated since the load before: the table has the records of both topics.
    """

    rows_count: int
    files_count: int
    next_offsets: Mapping[TopicPartition, int]
    table_version: int | None
    recreated_topics: frozenset[str] = frozenset()


def load_topic_to_lake(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    target_path: str | Path,
    *,
    event_time: str = "timestamp",
    options: Mapping[str, str] | None = None,
) -> LakeLoad:
    """Append the records that the table does not have yet; the table is created when there is none.

    A topic that was deleted and recreated since the last load is loaded from its beginning.
    `event_time` is a Spark SQL expression over the record's columns that gives a timestamp; where it is null, the
    record's own timestamp counts.  `options` are further options of the source.
    Columns: key, value, partition, offset, timestamp, event_time, and the table's partitions topic and event_hour (UTC,
    as in 2011-06-12-09; "out-of-range" beyond the years 1 to 9999).
    The target is a local path, so Spark must run on this machine.
    Raises `LakeError`, and the errors of the source.
    """
    root = Path(target_path).absolute()
    master = spark.sparkContext.master or ""
    if not master.startswith("local"):
        raise LakeError(f"the table {root} is on this machine, Spark runs on {master}", hint="use a local session")
    names = [topics] if isinstance(topics, str) else list(topics)
    source = {**(options or {}), "kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(names)}
    table = _open_table(root)
    plan = _plan(table, source)
    if not plan.versions:
        return LakeLoad(0, 0, plan.end, None)
    files: list[Row] = []
    if plan.first != plan.end:
        register_source(spark)
        files = _write(spark, source, plan, event_time, root)
        _check_same_topics(source, plan)
    return _commit(table, plan, files)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Offsets `[first, end)` of each partition, and the table's numbers (`lake_progress`) after them."""

    keys: TopicKeys
    progress: Progress
    first: Offsets
    end: Offsets

    @property
    def versions(self) -> Mapping[str, int]:
        return versions_to_commit(self.progress, self.first, self.end, self.keys)


def _open_table(root: Path) -> DeltaTable:
    if not DeltaTable.is_deltatable(str(root)):
        DeltaTable.create(str(root), TABLE_SCHEMA, mode="ignore", partition_by=list(PARTITION_COLUMNS))
    return DeltaTable(str(root))


def _plan(table: DeltaTable, source: Mapping[str, str]) -> _Plan:
    options = parse_read_options(source, is_stream=False)
    with ClusterView(options) as view:
        places = view.partitions()
        # Ids before offsets, and again after the last record: in between no topic was recreated.
        keys = TopicKeys(view.cluster_id, view.topic_ids({place.topic for place in places}))
        progress = progress_of(places, keys, table.transaction_version)
        end = view.latest(places)
        loaded = dict(progress.next_offsets)
        if not options.fails_on_data_loss:
            # A log that is shorter than its progress by name is taken for another topic's.
            loaded = {
                place: offset
                for place, offset in loaded.items()
                if offset <= end[place] or place not in progress.found_by_name
            }
        first = loaded | view.earliest(place for place in places if place not in loaded)
        # Records after the last load may have been deleted: such a gap is reported.
        first = view.checked("startingOffsets", first)
        return _Plan(keys, progress, first, end)


def _check_same_topics(source: Mapping[str, str], plan: _Plan) -> None:
    """The tasks read by topic name: refuse their rows when a topic of the plan was recreated meanwhile.

    A topic that was only deleted is accepted: its rows were read before.
    """
    with ClusterView(parse_read_options(source, is_stream=False)) as view:
        ids = view.topic_ids(plan.keys.topic_ids, missing_ok=True)
    changed = sorted(name for name, topic_id in ids.items() if topic_id != plan.keys.topic_ids[name])
    if changed:
        raise LakeError(
            f"{', '.join(changed)}: deleted and recreated during the load, nothing was committed",
            hint="run the load again",
        )


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
    """Everything in one commit, which fails when another load of these partitions was faster."""
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
    properties = CommitProperties(
        custom_metadata={
            "ottla.offsets": json.dumps(to_dict(plan.end)),
            "ottla.topic_ids": json.dumps({name: uuid_to_text(id_) for name, id_ in plan.keys.topic_ids.items()}),
        },
        app_transactions=[Transaction(app_id, version) for app_id, version in plan.versions.items()],
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
    rows_count = sum(file["rows_count"] for file in files)
    return LakeLoad(rows_count, len(files), plan.end, table.version(), plan.progress.recreated_topics)

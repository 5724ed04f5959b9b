"""Loads: topics into a lake table, data and offsets in one commit.

Tasks write Parquet files with unique names; the driver then commits, at once, the files and the next offset of each
partition (`progress`).  A load that fails before its commit leaves files that no reader sees, and the next one reads
the same records again; so every record is in the table once.  Of two loads at the same time, the second to commit is
refused.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ottla.audit.commits import load_counts
from ottla.audit.topic import publish as publish_counts
from ottla.client.wire.errors import ClientError
from ottla.dead_letters.topics import dead_letter_topic
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition, uuid_to_text
from ottla.model.windows import DEFAULT_WINDOW_MS
from ottla.observe.events import fields
from ottla.runtime.clock import SystemClock
from ottla.spark.errors import DataLoss, LakeError, SparkOptionError, TableRefused, first_line
from ottla.spark.jvm import is_remote
from ottla.spark.lake.backfill import carried_over, files_of, offsets_of, periods_of, ranges_of
from ottla.spark.lake.change_files import ChangeForm
from ottla.spark.lake.changes import BUCKET, BUCKETS_DEFAULT, UpsertRule
from ottla.spark.lake.files import TARGET_FILE_BYTES
from ottla.spark.lake.following import FollowedLoad, LoadTrack, follow_loads
from ottla.spark.lake.formats import open_table, table_target
from ottla.spark.lake.lake_table import LakeTable, TableCommit, TableTarget
from ottla.spark.lake.plans import (
    EARLIEST_START,
    FILES_PER_COMMIT,
    Commit,
    CommitLimits,
    LoadPlan,
    Start,
    plan_backfill,
    plan_load,
    share_out,
)
from ottla.spark.lake.publishing import publish
from ottla.spark.lake.refusals import LetterTarget
from ottla.spark.lake.rows import KEPT_BY_DEFAULT, PARTITION_HINT, Decode, EventTime, RowShape, partition_problem
from ottla.spark.lake.spark_jobs import check_files_are_seen, checked, master_of, parallelism_of, run_job, task_errors
from ottla.spark.lake.target import LakeTarget
from ottla.spark.lake.tasks import (
    REPORT_DDL,
    Counts,
    Stage,
    TaskJob,
    TaskReport,
    add_counts,
    no_observer,
    report_of,
    run_batches,
    run_ranges,
)
from ottla.spark.lake.upserts import Upserter, commits_count, first_schema
from ottla.spark.options.connection import Connection
from ottla.spark.options.offset_spec import to_dict
from ottla.spark.options.read_options import OnLoss, ReadOptions, parse_read_options
from ottla.spark.registration import register_source
from ottla.spark.source.cluster_view import ClusterView, open_cluster
from ottla.spark.worker_import import advised

log = logging.getLogger(__name__)

# A load publishes the counts of its commit at once, so one is left when it dies; commits of other loads may follow.
COUNTED_COMMITS_MAX: Final = 20
ROWS_PER_COMMIT: Final = 10_000_000
BYTES_PER_COMMIT: Final = 2 << 30
# Of a task of the first commit: the size of the records is not known yet.
ROWS_PER_TASK_FIRST: Final = 10_000
# Credentials that a catalog lends with a table hold for a quarter of an hour and more; a refresh renews them.
REFRESH_EVERY_MS: Final = 600_000
# Options of the source that would change what is read, or how, and that a load sets itself.
_NOT_OF_LOADS: Final = {
    "kafka.bootstrap.servers": "bootstrap=",
    "bootstrap.servers": "bootstrap=",
    "bootstrapServers": "bootstrap=",
    "subscribe": "topics=",
    "subscribePattern": "topics=",
    "assign": "topics=",
    "startingOffsets": "start=",
    "startingTimestamp": "start=",
    "startingOffsetsByTimestamp": "start=",
    "startingOffsetsByTimestampStrategy": "start=",
    "endingOffsets": "loads up to the end of the logs",
    "endingTimestamp": "loads up to the end of the logs",
    "endingOffsetsByTimestamp": "loads up to the end of the logs",
    "minPartitions": "rows_per_commit=",
    "maxRecordsPerPartition": "rows_per_commit=",
    "includeHeaders": 'columns=(..., "headers")',
    "pushFilters": "a load that reads every record",
}
APPEND: Final = "append"
UPSERT: Final = "upsert"
HISTORY: Final = "history"
KEYS_DEFAULT: Final = ("key",)
PARTITION_BY_DEFAULT: Final = ("topic", "event_hour")


@dataclass(frozen=True, slots=True)
class LakeLoad:
    """The result of a load: `next_offsets` is where the next one starts; `table_version` None without a commit.

    `recreated_topics` were deleted and recreated since the load before: the table has the records of both topics.
    `left_count`: offsets that were there when the load started, and are not loaded, since `should_stop` ended it.
    `refused`: records that are dead letters, and not in the table, by the reason: `decode` or `event_time`, which
    failed for them, `columns`, which the table does not take, or `change`, of upserts.
    """

    rows_count: int
    files_count: int
    next_offsets: Mapping[TopicPartition, int]
    table_version: int | None
    recreated_topics: frozenset[str] = frozenset()
    commits_count: int = 0
    left_count: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)

    @property
    def refused_count(self) -> int:
        return sum(self.refused.values())

    def plus(self, later: LakeLoad) -> LakeLoad:
        return LakeLoad(
            self.rows_count + later.rows_count,
            self.files_count + later.files_count,
            later.next_offsets,
            self.table_version if later.table_version is None else later.table_version,
            self.recreated_topics | later.recreated_topics,
            self.commits_count + later.commits_count,
            later.left_count,
            Counter(self.refused) + Counter(later.refused),
        )


@dataclass(frozen=True, slots=True)
class LoadState:
    """How far a load is: `left_count` is an upper bound, since offsets have gaps."""

    done: LakeLoad
    left_count: int


def load_topic_to_lake(
    spark: SparkSession,
    bootstrap: str,
    topics: str | Sequence[str],
    target_path: str | Path | LakeTarget,
    *,
    event_time: str | EventTime = "timestamp",
    options: Mapping[str, str] | None = None,
) -> LakeLoad:
    """`Loader(...).load()` with the defaults: append the records that the table does not have yet."""
    return Loader(spark, bootstrap, topics, target_path, event_time=event_time, options=options).load()


class Loader:
    """Loads topics into one table.

        from ottla.spark.lake import Loader

        loader = Loader(spark, "localhost:9092", ["clicks", "searches"], "/data/lake")
        loader.load()                    # what is there now; run it again for what came since
        loader.follow(every_s=10)        # until interrupted

    `target`: the path or the URL of a Delta table (`parse_target`, with `storage`), an `IcebergTarget`, or a
    `UnityTarget`.  The table is created when there is none, partitioned by `partition_by`: `topic` and `event_hour`
    (UTC, as in 2011-06-12-09) unless given, or `event_date`, or columns of `decode`; times beyond the years 1 to 9999
    are "out-of-range".
    Columns: key, value, topic, topic_id, partition, offset, timestamp, event_time, and those of `decode`; `columns`
    chooses among the record's own (key, value, timestamp, headers, timestampType).

    `decode` takes an Arrow batch of records and gives further columns, a row for each record.  Columns that the table
    does not have are added, and a wider type than the column's changes an Iceberg table; another type is refused.
    `event_time` gives a timestamp, or
    milliseconds since 1970, for each record of a batch: a function of the batch (`json_field("at_ms")`), or a Spark SQL
    expression over the record's columns, which is slower.  Where it is null, the record's own timestamp counts.
    `start`: where loads of a topic that the table does not have yet start: "earliest", "latest", or milliseconds since
    1970. A partition that is added later, and a topic that is recreated, are loaded from their start. `options`:
    further options of the source.

    `mode="upsert"`: the table has one row for each key, of the columns `keys`, as the key's last change left it.  A
    record without a value, or with true in a column `deleted` of `decode`, deletes the row.  The changes of a key are
    ordered by their log, or by the column `sequence_by` (`UpsertRule`).  `buckets`: that the keys' hashes divide the
    table into.  `mode="history"`: a row for each version of each key, valid from its `sequence_by` up to the next's.

    `dead_letters`: a record for which `decode` or `event_time` raises an error, whose columns have other types than the
    table's, or that is no change of an upsert's row, goes to the topic `<topic>.dead-letter` before its commit (True),
    or to the topic of this name.  Without it such a record ends the load, and loads that follow.

    `tells_audit`: after each commit, the counts of the newest ones are published to the audit topic, as tier `lake`.

    A commit has at most `rows_per_commit` records, about `bytes_per_commit` of memory, and no more than some 20,000
    files, by the records of the commit before, however large the backlog is.  A loader's first commit is small, since
    the size of its records and the number of their hours are not known yet.

    Raises `LakeError` and the errors of the source, also for options that a load sets itself; earlier commits stay.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        topics: str | Sequence[str],
        target: str | Path | LakeTarget | TableTarget,
        *,
        storage: Mapping[str, str] | None = None,
        event_time: str | EventTime = "timestamp",
        decode: Decode | None = None,
        columns: Sequence[str] = KEPT_BY_DEFAULT,
        partition_by: Sequence[str] | None = None,
        mode: str = APPEND,
        keys: Sequence[str] = KEYS_DEFAULT,
        sequence_by: str | None = None,
        buckets: int = BUCKETS_DEFAULT,
        start: Start = EARLIEST_START,
        options: Mapping[str, str] | None = None,
        rows_per_commit: int = ROWS_PER_COMMIT,
        bytes_per_commit: int = BYTES_PER_COMMIT,
        target_file_bytes: int = TARGET_FILE_BYTES,
        dead_letters: bool | str = False,
        tells_audit: bool = False,
        at: Callable[[Stage], None] = no_observer,
    ) -> None:
        names = [topics] if isinstance(topics, str) else list(topics)
        self._spark = spark
        self._topics = names
        self._source, self._options = source_of(bootstrap, names, options or {})
        self._sql_time = event_time if isinstance(event_time, str) and event_time != "timestamp" else None
        self._upserts = upsert_rule(mode, names, keys, sequence_by, buckets, partition_by)
        if self._upserts is not None:
            partition_by = self._upserts.partition_by
        elif partition_by is None:
            partition_by = PARTITION_BY_DEFAULT
        self._shape = RowShape(
            tuple(columns), tuple(partition_by), decode, None if isinstance(event_time, str) else event_time
        )
        self._target = table_target(target, storage)
        if self._upserts is not None:
            check_rule(self._upserts, self._shape)
        if self._target.location is not None:
            self._target.location.refuse_remote_master(master_of(spark))
        self._start = start
        self._limits = CommitLimits(rows_per_commit, bytes_per_commit, FILES_PER_COMMIT)
        self._target_file_bytes = target_file_bytes
        self._parallelism = parallelism_of(spark)
        self._seen: Commit | None = None
        # As the commit before suggests; the first one is small.
        self._changes = change_form(self._upserts, mostly_adds=True)
        self._has_published = False
        self._tells_audit = tells_audit
        self._letters = letters_of(self._options.connection, names, dead_letters)
        self._at = at
        self._opened: LakeTable | None = None

    def load(
        self,
        on_progress: Callable[[LoadState], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        track: LoadTrack | None = None,
    ) -> LakeLoad:
        """Everything that the logs have when the load starts, in one commit after the other.

        `on_progress` is called after each commit; `should_stop` is called before each.  `track` counts the commits.
        """
        clock = SystemClock()
        table, refreshed_ms = self._table(), clock.monotonic_ms()
        if self._upserts is not None:
            commits_count(table, self._upserts)
        plan = plan_load(table, self._options, self._start)
        total = LakeLoad(0, 0, plan.end, None)
        if not self._has_published:
            # Of commits whose process died before it published them.
            self._publish_counts(table)
            self._has_published = True
        if track is not None:
            track.committed(left_count=plan.offsets_count)
        while not plan.is_empty and not should_stop():
            if clock.monotonic_ms() - refreshed_ms >= REFRESH_EVERY_MS:
                table.refresh()
                refreshed_ms = clock.monotonic_ms()
            part = plan.at_most(self._offsets_per_commit())
            loaded = self._load_part(table, part)
            total = total.plus(loaded)
            plan = plan.rest(part)
            if track is not None:
                track.committed(
                    loaded.rows_count, loaded.files_count, 1, left_count=plan.offsets_count, refused=loaded.refused
                )
            self._publish_counts(table)
            if on_progress is not None:
                on_progress(LoadState(total, plan.offsets_count))
        return replace(total, next_offsets=plan.first if plan.ranges else plan.end, left_count=plan.offsets_count)

    def _publish_counts(self, table: LakeTable) -> None:
        if self._tells_audit:
            publish_table_counts(table, self._options.connection)

    def follow(
        self,
        every_s: float = 10.0,
        *,
        on_progress: Callable[[LoadState], None] | None = None,
        on_failure: Callable[[OttlaError, int | None], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> LakeLoad:
        """Load again and again, at most every `every_s` seconds, until `should_stop` or an interruption.

        The table is the only state: after a kill the next process continues where the last commit ended.  A load that
        fails, since brokers cannot be reached or another load was committed first, is repeated after a time that grows;
        `on_failure` gets the error and this time in ms, and without it the log has them.

        Raises `DataLoss`, and the errors of options and settings: a repetition would not help.
        """
        clock = SystemClock()
        track = LoadTrack(int(every_s * 1_000), clock.monotonic_ms())
        total = LakeLoad(0, 0, {}, None)

        def run(stops: Callable[[], bool]) -> int:
            nonlocal total
            loaded = self.load(on_progress, stops, track)
            total = total.plus(loaded)
            return loaded.left_count

        follow_loads([FollowedLoad(self.name, track, run, on_failure or self.log_failure)], clock, should_stop)
        if track.stopped_by is not None:
            raise track.stopped_by
        return total

    @property
    def name(self) -> str:
        """The place of the table, or its name in a catalog."""
        return self._target.name

    def log_failure(self, error: OttlaError, retry_ms: int | None) -> None:
        log.warning("lake.load_failed", extra=fields(table=self.name, reason=str(error), retry_ms=retry_ms))

    def backfill(self, from_ms: int, to_ms: int) -> LakeLoad:
        """Load the event times `[from_ms, to_ms)` of these topics again from their logs, in one commit.

        The range is of whole hours, or of whole days where the table is partitioned by `event_date`.  The records
        that the table has there and the log still has are read again, with this loader's `decode` and `event_time`,
        which may put them into other hours; rows of offsets that the log has deleted by age or size stay as they are.
        (A compacted log does not show which records it removed: those rows go.)  Offsets are not moved, and loads may
        run at the same time.  Every offset is in the table as often as before.

        Raises `DataLoss`, with any options, when the log loses records while they are read: nothing was
        committed then, and the backfill may be run again.
        """
        table = self._table()
        column, periods = periods_of(table.partition_by, from_ms, to_ms)
        if self._sql_time is not None:
            raise LakeError("a backfill takes no SQL expression for event_time", hint="give a function of a batch")
        options = replace(self._options, on_loss=OnLoss.FAIL)
        listed_at = table.version
        logs = plan_backfill(table, options)
        files = files_of(table, column, periods, self._topics)
        offsets, replaced, mixed = offsets_of(table, table.location, files, logs)
        ranges = ranges_of(offsets, logs)
        if not ranges:
            return LakeLoad(0, 0, {}, None)
        ids = {part.topic: part.topic_id for part in ranges}
        # The table has a row of each of these records: one that becomes a letter would be lost there.
        job = replace(self._job(table, ids), options=options, offsets=offsets, letters=None)
        tasks = share_out(ranges, self._parallelism)
        try:
            reports = run_job(self._spark, partial(run_ranges, job), tasks)
        except DataLoss as loss:
            raise DataLoss(f"nothing was replaced: {loss.args[0]}", hint="run the backfill again") from loss
        new = [file for report in reports for file in report.files]
        if is_remote(self._spark):
            check_files_are_seen(table.location, new)
        carried = list(carried_over(table, table.location, mixed, offsets))
        facts = {"ottla.backfill": json.dumps({"from_ms": from_ms, "to_ms": to_ms, "topics": sorted(ids)})}
        version = publish(table, TableCommit([*new, *carried], removed=replaced, facts=facts), {}, listed_at=listed_at)
        rows_count = sum(file.rows_count for file in new)
        return LakeLoad(rows_count, len(new) + len(carried), {}, version, frozenset(), 1)

    def _table(self) -> LakeTable:
        """As it is now.  Raises `TableRefused` where it is partitioned otherwise, or by columns of other types."""
        if self._opened is None:
            own = self._shape.first_schema
            if self._upserts is None:
                schema = self._shape.partitioned_schema
            else:
                own = schema = first_schema(own, self._upserts)
            opened = open_table(self._target, schema, self._shape.partition_by)
            # Columns of `decode` may have other types for records than for none: the tasks look at theirs.
            problem = partition_problem(opened.schema, own, self._shape.partition_by)
            if problem is not None:
                raise TableRefused(f"{opened.name}: {problem}", hint=PARTITION_HINT)
            opened.location.refuse_remote_master(master_of(self._spark))
            self._opened = opened
        else:
            self._opened.refresh()
        return self._opened

    def _offsets_per_commit(self) -> int:
        return self._limits.offsets_max(self._seen, ROWS_PER_TASK_FIRST * self._parallelism)

    def _load_part(self, table: LakeTable, part: LoadPlan) -> LakeLoad:
        self._at(Stage.PLANNED)
        reports = self._write(table, part) if part.ranges else []
        files = [file for report in reports for file in report.files]
        if is_remote(self._spark):
            check_files_are_seen(table.location, files)
        rows_count = sum(report.records_count for report in reports)
        read_bytes = sum(report.read_bytes for report in reports)
        if rows_count:
            self._seen = Commit(rows_count, read_bytes, len(files))
        commit = TableCommit(numbers=part.numbers, facts=facts_of(part, reports))
        if self._upserts is None:
            self._at(Stage.WRITTEN)
            self._at(Stage.COMMITTING)
            version, files_count = publish(table, replace(commit, added=files), part.expected), len(files)
        else:
            run = partial(run_job, self._spark, slices_max=self._parallelism)
            upserter = Upserter(run, table.location, self._upserts, self._target_file_bytes, self._at, self._changes)
            done = upserter.commit(table, files, commit, part.expected)
            version, files_count = done.version, done.files_count
            self._changes = change_form(self._upserts, mostly_adds=done.mostly_adds)
        self._at(Stage.COMMITTED)
        refused = sum((Counter(report.refused) for report in reports), Counter[str]())
        return LakeLoad(rows_count, files_count, part.end, version, part.progress.recreated_topics, 1, refused=refused)

    def _write(self, table: LakeTable, part: LoadPlan) -> list[TaskReport]:
        job = self._job(table, part.topic_ids)
        if self._sql_time is None:
            tasks = share_out(part.ranges, self._parallelism)
            return run_job(self._spark, partial(run_ranges, job), tasks)
        reports = self._write_by_sql(job, part, self._sql_time)
        check_same_topics(self._options, part)
        return reports

    def _job(self, table: LakeTable, topic_ids: Mapping[str, UUID]) -> TaskJob:
        return TaskJob(
            self._options,
            self._shape,
            table.location,
            # Of its changes an upsert's tasks know the bucket alone.
            table.partition_by if self._upserts is None else (BUCKET,),
            {name: uuid_to_text(topic_id) for name, topic_id in topic_ids.items()},
            self._target_file_bytes,
            upserts=self._upserts,
            changes=self._changes,
            at=self._at,
            letters=self._letters,
            columns=table.schema,
            widens=table.widens_columns,
            takes_empty_partitions=table.takes_empty_partitions,
        )

    def _write_by_sql(self, job: TaskJob, part: LoadPlan, event_time: str) -> list[TaskReport]:
        register_source(self._spark)
        bounds = {
            "startingOffsets": json.dumps(to_dict(part.first)),
            "endingOffsets": json.dumps(to_dict(part.end)),
        }
        if "headers" in job.read_columns:
            bounds["includeHeaders"] = "true"
        with task_errors():
            frame = self._spark.read.format("ottla").options(**{**self._source, **bounds}).load()
            try:
                rows = frame.selectExpr(
                    *job.read_columns, f"coalesce(CAST(({event_time}) AS TIMESTAMP), timestamp) AS event_time"
                )
            except AnalysisException as error:
                raise SparkOptionError(
                    f"event_time {event_time!r} is no expression over the records: {first_line(error)}"
                ) from error
            found = rows.mapInArrow(advised(partial(run_batches, job)), REPORT_DDL).collect()
        return checked([report_of(row["report"], row["schemas"]) for row in found])


def upsert_rule(
    mode: str,
    topics: Sequence[str],
    keys: Sequence[str],
    sequence_by: str | None,
    buckets: int,
    partition_by: Sequence[str] | None,
) -> UpsertRule | None:
    """None for loads that append.  Raises `LakeError` for arguments that do not suit the mode."""
    if mode in (UPSERT, HISTORY):
        if len(topics) != 1:
            raise LakeError("an upsert reads one topic", hint="give each topic of changes a table")
        if partition_by is not None:
            raise LakeError("a table of upserts is partitioned by buckets", hint="give no partition_by")
        return UpsertRule(tuple(keys), sequence_by, buckets, mode == HISTORY)
    if mode != APPEND:
        raise LakeError(f"mode is {mode!r}", hint=f"give {APPEND!r}, {UPSERT!r} or {HISTORY!r}")
    if tuple(keys) != KEYS_DEFAULT or sequence_by is not None or buckets != BUCKETS_DEFAULT:
        raise LakeError("keys, sequence_by and buckets are of upserts", hint=f"give mode={UPSERT!r}")
    return None


def change_form(rule: UpsertRule | None, *, mostly_adds: bool) -> ChangeForm:
    """Of the changes that a commit writes, by what those of the one before did.

    Where most changes add rows, as in a snapshot, they are written once, as in an append; else twice, the first time
    in a form that is quick to read.  Versions of a history have columns that only the second job knows.
    """
    is_plain = rule is not None and not rule.keeps_history
    return ChangeForm.ROWS if is_plain and mostly_adds else ChangeForm.CHANGES


def check_rule(rule: UpsertRule, shape: RowShape) -> None:
    """Raises `LakeError` for a key or an order that the rows cannot have, where their columns are known already."""
    known = shape.known_schema
    if known is not None:
        rule.check_schema(known)


def letters_of(connection: Connection, topics: Sequence[str], given: bool | str) -> LetterTarget | None:
    """None: a load without dead letters.  Raises `ConfigError` for a name that is none of a topic."""
    if given is False:
        return None
    name = None if given is True else given
    for topic in topics:
        dead_letter_topic(topic, name)
    return LetterTarget(connection, name)


def source_of(bootstrap: str, topics: Sequence[str], options: Mapping[str, str]) -> tuple[dict[str, str], ReadOptions]:
    """The options of the source of a load, as Spark takes them and as values.  Raises `SparkOptionError`."""
    refuse_others_options(options)
    source = {**options, "kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(topics)}
    return source, parse_read_options(source, is_stream=False)


def refuse_others_options(options: Mapping[str, str]) -> None:
    """Raises `SparkOptionError` for an option that a load would not follow."""
    others = {name.lower(): (name, hint) for name, hint in _NOT_OF_LOADS.items()}
    for given in options:
        if given.lower() in others:
            name, instead = others[given.lower()]
            raise SparkOptionError(f"the option {name!r} does not apply to a load", hint=f"a load has: {instead}")


def facts_of(part: LoadPlan, reports: Iterable[TaskReport]) -> dict[str, str]:
    """Beside the commit: what was loaded, and for the audit the rows by the time windows of their records."""
    counts: Counts = {}
    for report in reports:
        add_counts(counts, report.counts)
    ids = {name: uuid_to_text(topic_id) for name, topic_id in part.topic_ids.items()}
    windows = {
        name: {str(start): count for start, count in sorted(counts.get(topic_id, {}).items())}
        for name, topic_id in ids.items()
    }
    return {
        "ottla.cluster_id": part.keys.cluster_id,
        "ottla.topic_ids": json.dumps(ids),
        "ottla.first_offsets": json.dumps(to_dict(part.first)),
        "ottla.offsets": json.dumps(to_dict(part.end)),
        "ottla.window_ms": str(DEFAULT_WINDOW_MS),
        "ottla.window_counts": json.dumps(windows),
    }


def check_same_topics(options: ReadOptions, plan: LoadPlan) -> None:
    """Spark's own reader reads by topic name: refuse its rows when a topic of the plan was recreated during the load.

    A topic that was only deleted is accepted: its rows were read before.
    """
    with ClusterView(options) as view:
        ids = view.topic_ids(plan.topic_ids, missing_ok=True)
    changed = sorted(name for name, topic_id in ids.items() if topic_id != plan.topic_ids[name])
    if changed:
        raise LakeError(
            f"{', '.join(changed)}: deleted and recreated during the load, nothing was committed",
            hint="run the load again",
        )


def publish_table_counts(table: LakeTable, connection: Connection) -> None:
    """Publish the counts of the table's newest commits to the audit topic of the cluster that they were loaded from.

    They are read from the table, never from memory: when a process dies between a commit and its counts, the next load
    publishes them, as long as that commit is among the newest.  Duplicate counts do no harm.  `ottla audit run --table`
    publishes those of all commits that it compares.  A cluster that is not available does not stop a load.
    """
    counts = [
        count
        for each in table.newest_facts(COUNTED_COMMITS_MAX)
        for count in load_counts(table.name, each.facts, each.committed_ms)
    ]
    if not counts:
        return
    try:
        with open_cluster(connection) as cluster:
            publish_counts(cluster, counts)
    except ClientError as error:
        log.warning("lake.counts_deferred", extra=fields(table=table.name, reason=str(error)))

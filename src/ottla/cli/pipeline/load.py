"""`ottla load`: topics into a lake table, and what the table needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, Unpack

import click

from ottla.cli.client_flags import (
    DURATION,
    RenamedOption,
    assignments,
    bootstrap_flag,
    duration_ms,
    flags,
    moment_ms,
    output_flag,
    source_options,
)
from ottla.cli.exit_status import INTERRUPTED
from ottla.cli.output import data_lines, say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import KEY_VALUE, config_flag, every_flag, master_flag, spark_flag
from ottla.cli.verb_group import VerbGroup
from ottla.model.counted import counted
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.limits import HOUR_MS
from ottla.runtime.installed import ICEBERG, LAKE, require_modules
from ottla.runtime.interrupts import StopRequest

if TYPE_CHECKING:
    from ottla.spark.lake import LakeLoad, Loader, LoadState
    from ottla.spark.lake.lake_table import TableTarget


# Flags that name a lake table: a Delta table by its place, an Iceberg table also by its name in a catalog.
target_flags: Final = flags(
    click.option(
        "--target",
        metavar="URL",
        help="A path, s3://bucket/prefix or hdfs://...  [default: where the catalog of --table has the table]",
    ),
    click.option(
        "--storage",
        multiple=True,
        metavar=KEY_VALUE,
        help="A setting of S3, as AWS_ENDPOINT_URL; may be repeated.  [default: from the environment]",
    ),
    click.option(
        "--table",
        metavar="NAME",
        help="An Iceberg table: CATALOG.SCHEMA.TABLE, or NAMESPACE.NAME with --catalog or --target; with --catalog "
        "type=unity a Delta table, CATALOG.SCHEMA.TABLE.  [default: a Delta table by its place]",
    ),
    click.option(
        "--catalog",
        multiple=True,
        metavar=KEY_VALUE,
        help="A property of the table's catalog, as pyiceberg names it (type=rest, type=glue), or of a Unity Catalog: "
        "type=unity, uri=https://HOST, token=TOKEN; may be repeated.",
    ),
)


def lake_target(target: str | None, storage: Iterable[str], table: str | None, catalog: Iterable[str]) -> TableTarget:
    """Raises `ConfigError` where the table's packages are not installed: before Spark starts, which takes its time."""
    if table is None and target is None:
        raise click.UsageError("Missing option '--target', or '--table' of a catalog.")
    properties = assignments(catalog, "--catalog")
    is_of_unity = properties.get("type") == "unity"
    if table is None or is_of_unity:
        require_modules("a Delta table", LAKE, "lake")
    else:
        require_modules("an Iceberg table", ICEBERG, "iceberg")
    from ottla.spark.lake.formats import DeltaTarget, IcebergTarget, UnityTarget, catalog_table
    from ottla.spark.lake.target import parse_target

    if properties and table is None:
        raise click.UsageError("--catalog is for a table in a catalog: name it with --table.")
    settings = assignments(storage, "--storage")
    place = None if target is None else parse_target(target, settings)
    if table is None:
        assert place is not None
        return DeltaTarget(place)
    of_catalog = settings if place is None else {}
    if is_of_unity:
        return UnityTarget(table, properties, place, of_catalog)
    if place is None and not properties:
        return catalog_table(table, settings)
    if not all(table.rpartition(".")):
        raise ConfigError(f"{table!r} names no Iceberg table", hint="write NAMESPACE.NAME")
    return IcebergTarget(table, place, properties or None, of_catalog)


_RUN: Final = "run"
_HELP: Final = ("-h", "--help")


class _LoadGroup(VerbGroup):
    """`ottla load clicks` is `ottla load run clicks`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


@click.group(name="load", cls=_LoadGroup, no_args_is_help=True, subcommand_metavar="[run] TOPIC... | VERB ...")
def command() -> None:
    """Load topics into a Delta or an Iceberg table, each record once: data and offsets are one commit.

    `ottla load clicks --target /data/lake` loads what the table does not have yet; run it again for what came since,
    or let it run with --every.
    """


class _LoaderFlags(TypedDict):
    """What `run` and `backfill` have in common."""

    topics: tuple[str, ...]
    bootstrap: str
    target: str | None
    storage: tuple[str, ...]
    table: str | None
    catalog: tuple[str, ...]
    partition_by: tuple[str, ...]
    columns: tuple[str, ...]
    event_time_field: str | None
    decode: str | None
    options: tuple[str, ...]
    settings: tuple[str, ...]
    master: str | None


class RunFlags(_LoaderFlags):
    """Of `run`, besides those about its process."""

    event_time: str | None
    start: str
    rows_per_commit: int
    target_file_bytes: int
    dead_letters: bool
    dead_letter_topic: str | None
    tells_audit: bool
    upsert: bool
    history: bool
    keys: tuple[str, ...]
    sequence_by: str | None
    buckets: int
    debezium: str | None


# Of a session of Spark.
LoaderOf: TypeAlias = "Callable[[Any], Loader]"

_topics = click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
_target_file_bytes_flag = click.option(
    "--target-file-bytes", type=click.IntRange(min=1 << 16), metavar="BYTES", default=128 << 20, show_default=True
)
_partition_by = click.option(
    "--partition-by",
    "partition_by",
    multiple=True,
    metavar="COLUMN",
    help="topic, event_hour or event_date; may be repeated, in order.  [default: topic, event_hour]",
)
_columns = click.option(
    "--column",
    "columns",
    multiple=True,
    default=("key", "value", "timestamp"),
    show_default=True,
    metavar="COLUMN",
    help="Of the records: key, value, timestamp, headers, timestampType; may be repeated.",
)
_event_time_field = click.option(
    "--event-time-field", metavar="NAME", help="A field of values that are JSON: milliseconds, or ISO 8601."
)
_decode = click.option(
    "--decode",
    metavar="FILE.py:FUNCTION",
    help="Gives further columns: of an Arrow batch of records, a table with a row for each.",
)
_options = click.option(
    "--option", "options", multiple=True, metavar=KEY_VALUE, help="An option of the source; may be repeated."
)


_upsert_flags: Final = flags(
    click.option("--upsert", is_flag=True, help="One row for each key, as its last record left it."),
    click.option("--history", is_flag=True, help="With --upsert: one row for each version of a key."),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="COLUMN",
        help="A column of the key, for --upsert; may be repeated.  [default: the record's key]",
    ),
    click.option("--sequence-by", metavar="COLUMN", help="What orders the changes of a key.  [default: their log]"),
    click.option(
        "--buckets",
        type=click.IntRange(1, 10_000),
        metavar="N",
        default=16,
        show_default=True,
        help="That partition the table of upserts, by the key's hash.",
    ),
    click.option(
        "--debezium",
        metavar="COLUMNS",
        help='Values are events of Debezium in JSON, of rows with these columns: "id bigint, name string".',
    ),
)
# As Spark names them.
_COLUMN_TYPES: Final = ("bigint", "int", "double", "string", "boolean")


def _upsert_arguments(
    upsert: bool,
    history: bool,
    keys: tuple[str, ...],
    sequence_by: str | None,
    buckets: int,
    debezium: str | None,
) -> dict[str, Any]:
    """Of `Loader`."""
    if not upsert:
        if history or keys or sequence_by is not None or debezium is not None:
            raise click.UsageError("--history, --key, --sequence-by and --debezium are for --upsert.")
        return {}
    if history and sequence_by is None:
        raise click.UsageError("--history needs --sequence-by, from which a version is valid.")
    found: dict[str, Any] = {"mode": "history" if history else "upsert", "sequence_by": sequence_by, "buckets": buckets}
    if keys:
        found["keys"] = keys
    if debezium is not None:
        if not keys:
            raise click.UsageError("--debezium needs the columns of the key: give --key.")
        found["decode"] = _debezium(debezium, keys, sequence_by)
    return found


def _debezium(text: str, keys: tuple[str, ...], sequence_by: str | None) -> object:
    """`source_NAME` as the sequence is a whole number of the event's source."""
    import pyarrow as pa

    from ottla.spark.lake import debezium_json

    kinds = dict(zip(_COLUMN_TYPES, (pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.bool_()), strict=True))
    columns = []
    for each in text.split(","):
        name, _, kind = each.strip().rpartition(" ")
        if not name.strip() or kind.lower() not in kinds:
            raise click.UsageError(f"--debezium: {each.strip()!r} is not a name and one of {', '.join(_COLUMN_TYPES)}.")
        columns.append(pa.field(name.strip(), kinds[kind.lower()]))
    of_source = sequence_by is not None and sequence_by.startswith("source_")
    source = {str(sequence_by).removeprefix("source_"): pa.int64()} if of_source else None
    return debezium_json(pa.schema(columns), keys, source)


@command.command(name=_RUN)
@config_flag("load")
@_topics
@bootstrap_flag
@target_flags
@_partition_by
@_columns
@click.option("--event-time", metavar="SQL", help="A Spark SQL expression.  [default: the record's timestamp]")
@_event_time_field
@_decode
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    metavar="earliest|latest|TIME",
    help="Where partitions begin that the table does not know yet.",
)
@every_flag("Again and again, until Ctrl-C: 30s, 5m.  [default: once]")
@click.option(
    "--rows-per-commit",
    type=click.IntRange(min=1),
    metavar="N",
    default=10_000_000,
    show_default=True,
    help="At most so many records.",
)
@_target_file_bytes_flag
@_upsert_flags
@click.option(
    "--dead-letters",
    is_flag=True,
    help="Set records aside that cannot be loaded, in TOPIC.dead-letter.  [default: the load fails]",
)
@click.option("--dead-letter-topic", metavar="TOPIC", help="Set them aside in this topic.")
@click.option("--tells-audit", is_flag=True, help="Report the loaded counts to the audit, as the tier lake.")
@_options
@spark_flag
@master_flag
@output_flag()
def run(every: str | None, as_data: bool, **flags: Unpack[RunFlags]) -> int:
    """Append the records that the table does not have yet; with --every, until Ctrl-C.

    \b
    ottla load run clicks --target /data/lake --every 30s

    With --upsert the table has one row for each key, as the key's last record left it.

    With --every a load that fails, since brokers cannot be reached or another load was committed first, is repeated.
    `ottla load serve` does the same for several tables, with metrics.
    """
    every_ms = None if every is None else every_flag_ms(every)
    start_loader = _prepared("ottla load", flags, new_loader(flags))
    with JobProgress() as progress:
        progress.show("Spark starts")
        loader = start_loader()
        progress.show(f"loading {', '.join(flags['topics'])}")
        with StopRequest() as stop:
            outcome = _run(loader, every_ms, progress, stop)
    say(*(data_lines(_facts(outcome)) if as_data else [_line(outcome)]))
    # A load without --every must load all that was there; its caller must see that it did not.
    return INTERRUPTED if every_ms is None and outcome.left_count else 0


def new_loader(flags: RunFlags) -> LoaderOf:
    """What `ottla load run` loads with; flags that are wrong are found now."""
    start = flags["start"]
    upserts = partial(
        _upsert_arguments,
        flags["upsert"],
        flags["history"],
        flags["keys"],
        flags["sequence_by"],
        flags["buckets"],
        flags["debezium"],
    )
    return _loader_of(
        flags,
        flags["event_time"],
        upserts,
        start=start if start in ("earliest", "latest") else moment_ms(start, "--start"),
        rows_per_commit=flags["rows_per_commit"],
        target_file_bytes=flags["target_file_bytes"],
        dead_letters=flags["dead_letter_topic"] or flags["dead_letters"],
        tells_audit=flags["tells_audit"],
    )


def _prepared(name: str, flags: _LoaderFlags, loader_of: LoaderOf) -> Callable[[], Loader]:
    """What starts Spark and makes a loader."""
    settings = assignments(flags["settings"], "--spark")

    def start() -> Loader:
        import ottla.spark

        return loader_of(ottla.spark.session(name, master=flags["master"], **settings))

    return start


def _loader_of(
    flags: _LoaderFlags,
    event_time: str | None = None,
    arguments: Callable[[], Mapping[str, Any]] = dict,
    **more: Any,
) -> LoaderOf:
    """`arguments`: further ones of the loader, which need the packages of tables."""
    options = source_options(assignments(flags["options"], "--option"))
    place = lake_target(flags["target"], flags["storage"], flags["table"], flags["catalog"])
    field = flags["event_time_field"]
    if event_time is not None and field is not None:
        raise click.UsageError("--event-time and --event-time-field both say what an event's time is.")
    _check_source(flags, options)
    more |= arguments()
    if (decode := flags["decode"]) is not None:
        if "decode" in more:
            raise click.UsageError("--debezium and --decode both say what the columns are.")
        from ottla.spark.user_functions import load_function

        more["decode"] = load_function(decode, "function")
    _check_loader(flags, more)

    def make(spark: Any) -> Loader:
        from ottla.spark.lake import Loader, json_field

        return Loader(
            spark,
            flags["bootstrap"],
            flags["topics"],
            place,
            event_time=event_time or (json_field(field) if field else "timestamp"),
            columns=flags["columns"],
            partition_by=flags["partition_by"] or None,
            options=options,
            **more,
        )

    return make


def _check_source(flags: _LoaderFlags, options: Mapping[str, str]) -> None:
    """Imports PySpark, and starts no Java.  Raises `SparkOptionError`."""
    from ottla.spark.lake.load import source_of

    source_of(flags["bootstrap"], flags["topics"], options)


def _check_loader(flags: _LoaderFlags, more: Mapping[str, Any]) -> None:
    """What the loader would refuse when Spark has started.  Raises `LakeError`, `ConfigError`."""
    from ottla.dead_letters.topics import dead_letter_topic
    from ottla.spark.lake.changes import BUCKETS_DEFAULT
    from ottla.spark.lake.load import APPEND, KEYS_DEFAULT, PARTITION_BY_DEFAULT, check_rule, upsert_rule
    from ottla.spark.lake.rows import RowShape

    partition_by = flags["partition_by"] or None
    shape = RowShape(flags["columns"], partition_by or PARTITION_BY_DEFAULT, more.get("decode"))
    for name in shape.partition_by:
        # A function may give any column.
        if name not in shape.first_schema.names and "decode" not in more:
            raise click.UsageError(
                f"--partition-by: records have no column {name!r}; use topic, event_hour or event_date."
            )
    dead_letters = more.get("dead_letters", False)
    for topic in flags["topics"] if dead_letters else ():
        dead_letter_topic(topic, None if dead_letters is True else dead_letters)
    rule = upsert_rule(
        more.get("mode", APPEND),
        flags["topics"],
        more.get("keys", KEYS_DEFAULT),
        more.get("sequence_by"),
        more.get("buckets", BUCKETS_DEFAULT),
        partition_by,
    )
    if rule is not None:
        check_rule(rule, replace(shape, partition_by=rule.partition_by))


def every_flag_ms(text: str) -> int:
    """A number alone is seconds, as it was before the flag took durations."""
    return duration_ms(f"{text}s" if text.isdecimal() else text, "--every")


def _run(loader: Loader, every_ms: int | None, progress: JobProgress, stop: StopRequest) -> LakeLoad:
    def show(state: LoadState) -> None:
        rows = counted(state.done.rows_count, "row", separator=",")
        commits = counted(state.done.commits_count, "commit", separator=",")
        progress.show(f"{rows} in {commits}, {state.left_count:,} left{refused_text(state.done.refused)}")

    if every_ms is None:
        return loader.load(show, stop.is_made)
    return loader.follow(
        every_ms / 1000,
        on_progress=show,
        on_failure=lambda error, retry_ms: progress.say(failure_line(error, retry_ms)),
        should_stop=stop.is_made,
    )


def failure_line(error: OttlaError, retry_ms: int | None) -> str:
    again = "" if retry_ms is None else f"not loaded, tried again in {retry_ms / 1000:g} s: "
    return f"{again}{error}"


def _facts(outcome: LakeLoad) -> Mapping[str, object]:
    return {
        "rows": outcome.rows_count,
        "files": outcome.files_count,
        "commits": outcome.commits_count,
        "table_version": outcome.table_version,
        "left": outcome.left_count,
        "next_offsets": {str(place): offset for place, offset in sorted(outcome.next_offsets.items())},
        "refused": dict(outcome.refused),
        "recreated_topics": sorted(outcome.recreated_topics),
    }


def refused_text(refused: Mapping[str, int]) -> str:
    """What a summary says of dead letters; nothing without any."""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(refused.items()))
    return f", {counted(sum(refused.values()), 'record')} set aside ({reasons})" if refused else ""


def _line(outcome: LakeLoad) -> str:
    left = refused_text(outcome.refused)
    if outcome.left_count:
        offsets = counted(outcome.left_count, "offset", separator=",")
        left += f"; interrupted, {offsets} {'is' if outcome.left_count == 1 else 'are'} left"
    if outcome.table_version is None:
        return f"loaded nothing{left}" if left else "nothing to load"
    rows, files = counted(outcome.rows_count, "row"), counted(outcome.files_count, "file")
    return f"loaded {rows} in {files}, table version {outcome.table_version}{left}"


@command.command(name="backfill")
@config_flag("load", "backfill")
@_topics
@bootstrap_flag
@target_flags
@click.option(
    "--since",
    "begin",
    cls=RenamedOption,
    formerly=("--from",),
    required=True,
    metavar="TIME",
    help="The first hour, or day, that is rewritten.",
)
@click.option(
    "--until",
    "end",
    cls=RenamedOption,
    formerly=("--to",),
    required=True,
    metavar="TIME",
    help="Where they end (exclusive).",
)
@_partition_by
@_columns
@_event_time_field
@_decode
@_options
@spark_flag
@master_flag
@output_flag()
def backfill(begin: str, end: str, as_data: bool, **flags: Unpack[_LoaderFlags]) -> None:
    """Rewrite whole hours or days of the table from the log; loads may run meanwhile.

    \b
    ottla load backfill clicks --target /data/lake --since 2026-03-01T12:00 --until 2026-03-01T14:00
    """
    from_ms, to_ms = moment_ms(begin, "--since"), moment_ms(end, "--until")
    start_loader = _prepared("ottla load backfill", flags, _loader_of(flags))
    with JobProgress() as progress:
        progress.show("Spark starts")
        loader = start_loader()
        progress.show(f"reading {', '.join(flags['topics'])} again")
        outcome = loader.backfill(from_ms, to_ms)
    facts = {"rows": outcome.rows_count, "files": outcome.files_count, "table_version": outcome.table_version}
    if as_data:
        say(*data_lines(facts))
    elif outcome.table_version is None:
        say("nothing to rewrite: the table has no rows there that the log still has")
    else:
        say(f"read {counted(outcome.rows_count, 'row')} again, table version {outcome.table_version}")


@command.command(name="compact")
@config_flag("load", "compact")
@target_flags
@_target_file_bytes_flag
@output_flag()
def compact(
    target: str | None,
    storage: tuple[str, ...],
    table: str | None,
    catalog: tuple[str, ...],
    target_file_bytes: int,
    as_data: bool,
) -> None:
    """Rewrite small files as larger ones; loads may run meanwhile.

    \b
    ottla load compact --target /data/lake
    """
    place = lake_target(target, storage, table, catalog)
    from ottla.spark.lake import compaction

    def show(state: compaction.Compaction) -> None:
        files = counted(state.files_before, "file", separator=",")
        progress.show(f"{files} merged into {state.files_after:,}")

    with JobProgress() as progress:
        progress.show("looking for small files")
        done = compaction.compact(place, target_file_bytes=target_file_bytes, on_progress=show)
    facts = {"files_before": done.files_before, "files_after": done.files_after, "rows": done.rows_count}
    if as_data:
        say(*data_lines({**facts, "table_version": done.version}))
    elif done.version is None:
        say("nothing to compact")
    else:
        say(f"{counted(done.files_before, 'file')} with {counted(done.rows_count, 'row')} became {done.files_after}")


@command.command(name="vacuum")
@config_flag("load", "vacuum")
@target_flags
@click.option(
    "--older-than",
    metavar=DURATION,
    default="7d",
    show_default=True,
    help="At least 1h: younger files may belong to a load or a reader that runs.",
)
@click.option("--older-than-hours", type=click.FloatRange(min=1), metavar="N", hidden=True)
@click.option("--dry-run", is_flag=True, help="Only name the files.")
@output_flag()
def vacuum(
    target: str | None,
    storage: tuple[str, ...],
    table: str | None,
    catalog: tuple[str, ...],
    older_than: str,
    older_than_hours: float | None,
    dry_run: bool,
    as_data: bool,
) -> None:
    """Remove files that no version of the table needs: of tasks that died, and those that were replaced.

    \b
    ottla load vacuum --target /data/lake --dry-run
    """
    if older_than_hours is None:
        older_than_hours = duration_ms(older_than, "--older-than") / HOUR_MS
        if older_than_hours < 1:
            raise click.UsageError(f"--older-than is at least 1h, not {older_than}.")
    place = lake_target(target, storage, table, catalog)
    from ottla.spark.lake import compaction

    found = compaction.vacuum(place, older_than_hours=older_than_hours, dry_run=dry_run)
    if as_data:
        say(*data_lines({"files": found, "dry_run": dry_run}))
        return
    for path in found:
        say(path)
    say(f"{counted(len(found), 'file')} {'would be removed' if dry_run else 'removed'}", err=True)

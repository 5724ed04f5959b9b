"""`ottla load serve`: the tables of a file of settings, each loaded again and again, in one process with one Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import click

from ottla.cli.client_flags import assignments, duration_ms
from ottla.cli.output import say
from ottla.cli.pipeline.job_progress import JobProgress
from ottla.cli.pipeline.job_settings import (
    check_shared_table,
    every_flag,
    job_settings,
    master_flag,
    named_tables,
    spark_flag,
)
from ottla.cli.pipeline.load import LoaderOf, RunFlags, every_flag_ms, failure_line, new_loader, refused_text, run
from ottla.cli.pipeline.load import command as group
from ottla.cli.pipeline.load_health import LoadHealth, load_metrics, unhealthy
from ottla.model.counted import counted
from ottla.model.errors import ConfigError, OttlaError, details_of
from ottla.runtime.clock import SystemClock
from ottla.runtime.interrupts import StopRequest

if TYPE_CHECKING:
    from ottla.spark.lake import Loader
    from ottla.spark.lake.following import FollowedLoad

_TABLES: Final = "tables"
_EVERY_DEFAULT: Final = "10s"
# Of a process that serves several tables; the tables' own settings of these would have no effect.
_OF_THE_PROCESS: Final = ("as_data", "json", "master", "settings")


class TableSettings(NamedTuple):
    """`loader` makes it in a session, all else is checked before."""

    name: str
    every_ms: int
    loader: LoaderOf


def _read_own_settings(context: click.Context, _option: click.Parameter, path: Path) -> Path:
    own = job_settings(path, ("load", "serve"), context.command)
    context.default_map = {**(context.default_map or {}), **own}
    return path


@click.command(name="serve")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    is_eager=True,
    callback=_read_own_settings,
    metavar="FILE.toml",
    help="Has [load.tables.NAME] for each table, and [load.serve] for these flags.",
)
@every_flag(f"How often a table is loaded that does not say it itself.  [default: {_EVERY_DEFAULT}]")
@click.option("--http", metavar="HOST:PORT", help="Serve /healthz and /metrics.  [default: neither]")
@click.option(
    "--unhealthy-after",
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="/healthz fails when loads of a table have failed for so long.",
)
@click.option("--check", "only_checks", is_flag=True, help="Check the file, and end.")
@spark_flag
@master_flag
def serve(
    config: Path,
    every: str | None,
    http: str | None,
    unhealthy_after: str,
    only_checks: bool,
    settings: tuple[str, ...],
    master: str | None,
) -> int:
    """Load the tables of a file, each again and again, until Ctrl-C or SIGTERM.

    \b
    ottla load serve --config loads.toml

    \b
    [load]                                # for all tables
    bootstrap-server = "localhost:9092"

    \b
    [load.tables.clicks]                  # flags of `ottla load run`
    topics = ["clicks"]
    target = "/data/lake/clicks"
    every = "30s"

    The file is checked before Spark starts.  A load that fails is repeated after a time that grows; the others go
    ahead.  It ends when no table can be loaded any more.
    """
    failing_max_ms = duration_ms(unhealthy_after, "--unhealthy-after")
    address = None if http is None else _address(http)
    tables = list(tables_of(config, every))
    options = assignments(settings, "--spark")
    if only_checks:
        say(f"{config}: {counted(len(tables), 'table')}: {', '.join(table.name for table in tables)}")
        return 0
    with JobProgress() as progress:
        progress.show("Spark starts")
        import ottla.spark
        from ottla.spark.lake.following import follow_loads

        spark = ottla.spark.session("ottla load", master=master, **options)
        clock = SystemClock()
        loads = [_followed(table, table.loader(spark), progress, clock.monotonic_ms()) for table in tables]
        tracks = {load.name: load.track for load in loads}
        with ExitStack() as stack:
            stop = stack.enter_context(StopRequest())
            if address is not None:
                health = LoadHealth(
                    *address,
                    lambda: load_metrics(tracks, clock.monotonic_ms()),
                    lambda: unhealthy(tracks, clock.monotonic_ms(), failing_max_ms),
                )
                stack.enter_context(health)
                host = f"[{address[0]}]" if ":" in address[0] else address[0]
                progress.say(f"metrics on http://{host}:{health.port}/metrics")
            follow_loads(loads, clock, stop.is_made)
    for load in loads:
        track = load.track
        rows, commits = counted(track.rows_count, "row"), counted(track.commits_count, "commit")
        say(f"{load.name}: {rows} in {commits}{refused_text(track.letters)}")
    return 1 if all(track.stopped_by is not None for track in tracks.values()) else 0


def tables_of(config: Path, every: str | None) -> Iterator[TableSettings]:
    """The tables of a file, in its order.  Raises `ConfigError`, which names the table."""
    check_shared_table(config, "load", group.commands.values(), (*group.commands, _TABLES))
    places: dict[tuple[object, ...], str] = {}
    for name in named_tables(config, ("load", _TABLES)):
        where = f"{config}: [load.{_TABLES}.{name}]"
        found = job_settings(config, ("load", _TABLES, name), run)
        own = job_settings(config, ("load", _TABLES, name), run, inherits=False)
        for parameter in _OF_THE_PROCESS:
            if parameter in own:
                raise ConfigError(
                    f"{where} has a setting of the process", hint="write it in [load.serve], or as a flag"
                )
            found.pop(parameter, None)
        yield _table(name, where, found, every, places)


def _table(
    name: str, where: str, found: dict[str, object], every: str | None, places: dict[tuple[object, ...], str]
) -> TableSettings:
    try:
        # Entered: the table's own profile and client.properties count, not those of `load serve`.
        with run.make_context(name, [], default_map=found) as context:
            flags = dict(context.params)
            every_ms = every_flag_ms(flags.pop("every") or every or _EVERY_DEFAULT)
            for parameter in _OF_THE_PROCESS:
                flags.pop(parameter, None)
            loader = new_loader(cast(RunFlags, flags))
    except (click.UsageError, OttlaError) as error:
        message = error.format_message() if isinstance(error, click.UsageError) else str(error)
        hint = error.hint if isinstance(error, OttlaError) else "the table's keys are the flags of `ottla load run`"
        raise ConfigError(f"{where}: {message}", hint=hint) from None
    place = (flags["target"], flags["table"], tuple(flags["catalog"]))
    if place in places:
        raise ConfigError(
            f"{where} has the target of {places[place]}", hint="list all topics of a table in one place: topics = [...]"
        )
    places[place] = name
    return TableSettings(name, every_ms, loader)


def _followed(table: TableSettings, loader: Loader, progress: JobProgress, now_ms: int) -> FollowedLoad:
    from ottla.spark.lake.following import FollowedLoad, LoadTrack

    track = LoadTrack(table.every_ms, now_ms)

    def rows() -> str:
        return counted(track.rows_count, "row", separator=",")

    def load(stops: Callable[[], bool]) -> int:
        loaded = loader.load(
            lambda state: progress.show(f"{table.name}: {rows()}, {state.left_count:,} left"),
            stops,
            track,
        )
        if loaded.commits_count:
            commits = counted(track.commits_count, "commit", separator=",")
            progress.show(f"{table.name}: {rows()} in {commits}{refused_text(track.letters)}")
        return loaded.left_count

    def report(error: OttlaError, retry_ms: int | None) -> None:
        stopped = "stopped: " if retry_ms is None else ""
        progress.say(f"{table.name}: {stopped}{failure_line(error, retry_ms)}")
        for line in (line for text in details_of(error) for line in text.splitlines()):
            progress.say(f"  {line}")

    return FollowedLoad(table.name, track, load, report)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.UsageError(f"--http takes HOST:PORT, not {text!r}.")
    return host, int(port)

"""`ottla topic offsets` and `ottla topic delete-records`: where logs start and end, and where they shall start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import all_names, bootstrap_flag, moment_ms, open_cluster, output_flag
from ottla.cli.output import data_lines, raise_together, say, table
from ottla.cli.partition_names import partitions_named
from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.errors import ClientError

_CLIENT_ID: Final = "ottla-topic"
_PARTITIONS: Final = click.argument("names", nargs=-1, metavar="TOPIC[:0,1]...")
_ALL_OR_PARTITIONS: Final = click.argument("names", nargs=-1, metavar="[TOPIC[:0,1]...]")
_PARTITIONS_FLAG: Final = click.option(
    "--topic", "more_names", multiple=True, metavar="TOPIC[:0,1]", help="The same as TOPIC."
)


@click.command(name="offsets")
@_ALL_OR_PARTITIONS
@_PARTITIONS_FLAG
@bootstrap_flag
@click.option("--since", metavar="TIME", help="Also the offset of the first record at or after this time.")
@output_flag("One object for each partition.")
def offsets(
    names: tuple[str, ...], more_names: tuple[str, ...], bootstrap: str, since: str | None, as_data: bool
) -> None:
    """Show where the logs of topics start and end, and what they hold between; of all topics when none is named.

    \b
    ottla topic offsets clicks:0,1 --since 2026-03-01T12:00

    END is the high watermark: records below it can be read.  RECORDS counts offsets: transactions and compaction leave
    some of them without a record.
    """
    from ottla.client.admin.admin import Admin
    from ottla.client.fetching.offsets import EARLIEST, LATEST, try_list_offsets

    # ListOffsets takes negative times for the ends of the log.
    time_ms = None if since is None else max(0, moment_ms(since, "--since"))
    wanted = all_names(names, more_names)
    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        partitions = partitions_named(cluster, wanted or [topic.name for topic in Admin(cluster).list_topics()])
        starts = try_list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        ends = try_list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        times = {} if time_ms is None else try_list_offsets(cluster, dict.fromkeys(partitions, time_ms))
    rows = [_row(each, starts[each], ends[each], times.get(each)) for each in sorted(partitions)]
    if as_data:
        for row in rows:
            say(*data_lines(row if since is not None else {key: row[key] for key in row if key != "since_offset"}))
        return
    columns = ["topic", "partition", "start_offset", "end_offset", "records", *(["since_offset"] if since else [])]
    heads = {"start_offset": "START", "end_offset": "END", "since_offset": "SINCE"}
    say(*table([heads.get(key, key.upper()) for key in columns], [[row[key] for key in columns] for row in rows]))
    for problem in dict.fromkeys(row["problem"] for row in rows if row["problem"] is not None):
        say(f"note: {problem}", err=True)


def _row(partition: TopicPartition, start: object, end: object, since: object) -> dict[str, object]:
    """A partition whose leader did not answer has its problem, and does not hide the others."""
    from ottla.client.fetching.offsets import OffsetAnswer

    problem = next((str(each) for each in (start, end, since) if isinstance(each, OttlaError)), None)
    first = start.offset if isinstance(start, OffsetAnswer) else None
    last = end.offset if isinstance(end, OffsetAnswer) else None
    at = since.offset if isinstance(since, OffsetAnswer) and since.offset >= 0 else None
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": first,
        "end_offset": last,
        "records": None if first is None or last is None else last - first,
        "since_offset": at,
        "problem": problem,
    }


@click.command(name="delete-records")
@_PARTITIONS
@_PARTITIONS_FLAG
@bootstrap_flag
@click.option("--before-offset", type=click.IntRange(min=0), metavar="OFFSET", help="Delete the records before it.")
@click.option("--until", metavar="TIME", help="Delete the records before the first one at or after this time.")
@click.option("--all", "deletes_all", is_flag=True, help="Delete all records that can be read.")
@click.option(
    "--execute", is_flag=True, help="Delete.  Without it nothing is changed, and the new starts are only shown."
)
@output_flag("One object for each partition.")
def delete_records(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    bootstrap: str,
    before_offset: int | None,
    until: str | None,
    deletes_all: bool,
    execute: bool,
    as_data: bool,
) -> None:
    """Delete the oldest records of topics, at once and for ever: the logs start later from then on.

    \b
    ottla topic delete-records clicks --until 2026-03-01T12:00
    ottla topic delete-records clicks:0 --before-offset 1000 --execute
    """
    wanted = all_names(names, more_names)
    if not wanted:
        raise click.UsageError("Name at least one topic.")
    if (before_offset is not None) + (until is not None) + deletes_all != 1:
        raise click.UsageError("Give one of --before-offset, --until and --all.")
    time_ms = None if until is None else moment_ms(until, "--until")
    if time_ms is not None and time_ms < 0:  # ListOffsets takes it for an end of the log
        raise click.UsageError("--until is before 1970, and no record is.")

    from ottla.client.admin.admin import Admin
    from ottla.client.fetching.offsets import log_ranges

    with open_cluster(bootstrap, _CLIENT_ID) as cluster:
        partitions = sorted(partitions_named(cluster, wanted))
        ranges = log_ranges(cluster, partitions)
        found = new_starts(ranges, before_offset, None if time_ms is None else _at_time(cluster, partitions, time_ms))
        outcomes: Mapping[TopicPartition, int | ClientError] = found
        if execute:
            outcomes = Admin(cluster).try_delete_records(found)
    rows = [
        (each.topic, each.partition, ranges[each].start, new, new - ranges[each].start)
        for each, new in outcomes.items()
        if isinstance(new, int)
    ]
    keys = ("topic", "partition", "start_offset", "new_start_offset", "deleted")
    if as_data:
        for row in rows:
            say(*data_lines({**dict(zip(keys, row, strict=True)), "dry_run": not execute}))
    elif rows:
        say(*table(["TOPIC", "PARTITION", "START", "NEW-START", "DELETED"], rows))
    if not found:
        say("nothing to delete", err=True)
    elif not execute:
        say(f"nothing was changed: --execute deletes {counted(sum(row[4] for row in rows), 'record')}", err=True)
    raise_together(refusals(outcomes))


def refusals(outcomes: Mapping[TopicPartition, object]) -> list[OttlaError]:
    """Each reason once: that of an absent leader is of all its partitions, and does not name them."""
    partitions: dict[OttlaError, list[str]] = {}
    for partition, outcome in outcomes.items():
        if isinstance(outcome, OttlaError):
            partitions.setdefault(outcome, []).append(str(partition))
    return [
        error if names[0] in str(error) else OttlaError(f"{', '.join(names)}: {error}", hint=error.hint)
        for error, names in partitions.items()
    ]


def new_starts(
    ranges: Mapping[TopicPartition, range], before_offset: int | None, times: Mapping[TopicPartition, int] | None
) -> dict[TopicPartition, int]:
    """The partitions whose log starts later, by its readable range; `times`: the offset at a time, -1 after the end.

    Neither: all records are deleted.  An offset beyond the end is an error, since it is a mistake in a number.
    """
    found: dict[TopicPartition, int] = {}
    for partition, readable in ranges.items():
        start = readable.stop
        if before_offset is not None:
            start = before_offset
        elif times is not None and times[partition] >= 0:
            start = times[partition]
        if start > readable.stop:
            raise OttlaError(
                f"{partition}: offset {start} is not in the log, which ends at {readable.stop}",
                hint="`ottla topic offsets` shows where logs start and end",
            )
        if start > readable.start:
            found[partition] = start
    return found


def _at_time(cluster: Cluster, partitions: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
    from ottla.client.fetching.offsets import list_offsets

    return {each: at.offset for each, at in list_offsets(cluster, dict.fromkeys(partitions, time_ms)).items()}

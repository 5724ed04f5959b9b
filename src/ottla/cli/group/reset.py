"""`ottla group reset-offsets`: moves a group; --execute applies what is shown without it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_flags import DURATION, duration_ms, moment_ms, one_name, output_flag
from ottla.cli.group.group_admins import group_flags, kind_flag, open_group_admins
from ottla.cli.output import data_lines, say, table
from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.model.limits import INT64_MAX, MIB
from ottla.runtime.text_file import read_text_file

if TYPE_CHECKING:
    from ottla.client.groups.group_types import GroupOperations
    from ottla.client.wire.cluster import Cluster


_FILE_BYTES_MAX: Final = 64 * MIB
_COLUMNS: Final = 3
# kafka-consumer-groups exports several groups with the group as first column.
_COLUMNS_WITH_GROUP: Final = 4
_PARTITION_MAX: Final = 2**31 - 1


def write_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for partition, offset in sorted(offsets.items()):
        writer.writerow([partition.topic, partition.partition, offset])
    return out.getvalue()


def read_offsets(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """The offsets of a file; lines of four columns begin with the group, and only this one's count.

    Raises `OttlaError` that names the line.
    """
    content = read_text_file(path, _FILE_BYTES_MAX, _FORM)
    try:
        rows = list(csv.reader(io.StringIO(content), strict=True))
    except csv.Error as error:
        raise OttlaError(f"{path} is not CSV: {error}", hint=_FORM) from error
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == _COLUMNS_WITH_GROUP:
            if cells[0] != group_id:
                continue
            cells = cells[1:]
        partition, offset = _parsed(cells, f"{path} line {number}")
        if partition in found:
            raise OttlaError(f"{path} line {number}: {partition} is listed twice", hint=_FORM)
        found[partition] = offset
    if not found:
        raise OttlaError(f"{path} has no offsets for group {group_id}", hint=_FORM)
    return found


def _parsed(cells: list[str], where: str) -> tuple[TopicPartition, int]:
    if len(cells) != _COLUMNS:
        raise OttlaError(f"{where}: {len(cells)} columns", hint=_FORM)
    topic, partition, offset = cells
    problem = topic_name_problem(topic)
    if problem is not None:
        raise OttlaError(f"{where}: {problem}", hint=_FORM)
    return TopicPartition(topic, _number(partition, _PARTITION_MAX, where)), _number(offset, INT64_MAX, where)


def _number(text: str, limit: int, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= limit):
        raise OttlaError(f"{where}: {text!r} is not a number from 0 to {limit}", hint=_FORM)
    return int(text)


_FORM: Final = "each line is topic,partition,offset as --export writes it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Exactly one of these is given; times are ms since the epoch or ms before now."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_time_ms: int | None = None
    by_duration_ms: int | None = None
    from_file: Path | None = None

    def check(self) -> None:
        """Raises UsageError unless exactly one is given."""
        given = [
            self.to_earliest,
            self.to_latest,
            self.to_current,
            self.to_offset is not None,
            self.shift_by is not None,
            self.to_time_ms is not None,
            self.by_duration_ms is not None,
            self.from_file is not None,
        ]
        if sum(given) != 1:
            raise click.UsageError(
                "Give a target: one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
                "--to-datetime, --by-duration, --from-file."
            )


def target_of(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
) -> Target:
    target = Target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_time_ms=None if to_datetime is None else moment_ms(to_datetime, "--to-datetime"),
        by_duration_ms=None if by_duration is None else duration_ms(by_duration, "--by-duration"),
        from_file=from_file,
    )
    target.check()
    return target


def new_offsets(
    cluster: Cluster,
    target: Target,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    given: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, int], list[str]]:
    """The new offset of each partition, and notes on clamped ones (offsets stay within the log) and on missing ones.

    `given` are those of a file.
    """
    from ottla.client.fetching.offsets import log_ranges

    ranges = log_ranges(cluster, partitions)
    if target.to_earliest:
        return {each: ranges[each].start for each in partitions}, []
    if target.to_latest:
        return {each: ranges[each].stop for each in partitions}, []
    if target.to_time_ms is not None or target.by_duration_ms is not None:
        return _by_time(cluster, target, ranges), []
    if target.to_offset is not None:
        return _within(dict.fromkeys(partitions, target.to_offset), ranges)
    if target.from_file is not None:
        return _within(given, ranges)
    without = [str(each) for each in partitions if each not in committed]
    if without and target.shift_by is not None:
        raise OttlaError(
            f"{', '.join(without)} has no committed offset to shift", hint="move it with --to-earliest or --to-offset"
        )
    if target.shift_by is not None:
        return _within({each: committed[each] + target.shift_by for each in partitions}, ranges)
    # As in Kafka's tools: a partition without an offset starts with the next record.
    found, notes = _within({each: committed.get(each, ranges[each].stop) for each in partitions}, ranges)
    notes += [f"{name} has no committed offset: the log's end is used" for name in without]
    return found, notes


def _by_time(cluster: Cluster, target: Target, ranges: Mapping[TopicPartition, range]) -> dict[TopicPartition, int]:
    """The first record at or after the time; the end where there is none."""
    from ottla.client.fetching.offsets import list_offsets

    time_ms = target.to_time_ms
    if time_ms is None:
        assert target.by_duration_ms is not None
        time_ms = cluster.clock.now_ms() - target.by_duration_ms
    if time_ms < 0:
        raise OttlaError("the time is before 1970", hint="--to-earliest moves to the oldest record")
    answers = list_offsets(cluster, dict.fromkeys(ranges, time_ms))
    return {each: answer.offset if answer.offset >= 0 else ranges[each].stop for each, answer in answers.items()}


def _within(
    wanted: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, range]
) -> tuple[dict[TopicPartition, int], list[str]]:
    found: dict[TopicPartition, int] = {}
    notes: list[str] = []
    for partition, offset in wanted.items():
        log = ranges[partition]
        found[partition] = min(max(offset, log.start), log.stop)
        if found[partition] != offset:
            notes.append(
                f"{partition}: offset {offset} is outside of the log ({log.start} to {log.stop}); "
                f"{found[partition]} is used"
            )
    return found, notes


@click.command(name="reset-offsets")
@click.argument("group_argument", metavar="GROUP", required=False)
@click.option("--group", "group_named", metavar="GROUP", help="The same as GROUP.")
@group_flags
@kind_flag
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="This topic, or some of its partitions.")
@click.option("--all-topics", is_flag=True, help="Every topic with an offset of the group.")
@click.option("--to-earliest", is_flag=True, help="To the oldest record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To its current offsets: with --export, a backup.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by this many offsets, backward when negative.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record at or after this time: 2026-03-01T12:00:00, UTC."
)
@click.option("--by-duration", metavar=DURATION, help="To the first record of the last PT1H30M, P2D or 90m.")
@click.option(
    "--from-file", type=click.Path(path_type=Path), metavar="FILE", help="To the offsets in a file of --export."
)
@click.option("--execute", is_flag=True, help="Apply.  Without it the new offsets are only shown.")
@click.option("--dry-run", is_flag=True, help="Only show: the default.")
@click.option("--export", is_flag=True, help="Show the new offsets as CSV: topic,partition,offset.")
@output_flag("One object for each partition.")
def command(
    group_argument: str | None,
    group_named: str | None,
    bootstrap: str | None,
    zookeeper: str | None,
    kind: str | None,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
    execute: bool,
    dry_run: bool,
    export: bool,
    as_data: bool,
) -> None:
    """Set the offsets from which a group continues.

    Its members must be stopped; but those of a group of type tree release their partitions, and start from there.

    \b
    ottla group reset-offsets billing --topic orders --to-datetime 2026-03-01T00:00:00 --execute
    ottla group reset-offsets billing --all-topics --to-current --export > billing.csv
    """
    group_id = one_name("group", group_argument, group_named)
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    target = target_of(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_offset=to_offset,
        shift_by=shift_by,
        to_datetime=to_datetime,
        by_duration=by_duration,
        from_file=from_file,
    )
    if bool(topics) + all_topics + (from_file is not None) != 1:
        raise click.UsageError("Name the topics: --topic TOPIC or --all-topics (a file of --from-file names its own).")

    with open_group_admins(bootstrap, zookeeper) as admins:
        admin = admins.admin_of(group_id, kind)
        is_known = admin is not None and _check_settable(admin, group_id)
        admin = admin or admins.admin_of_new(kind)
        of_type = "tree" if admin is admins.tree else "classic"
        offsets = admin.committed(group_id) if is_known else {}
        committed = {partition: each.offset for partition, each in offsets.items()}
        given = _given(target, group_id)
        chosen = sorted(given) if given else _chosen(admins.cluster, group_id, topics, committed)
        _check_partitions(admins.cluster, chosen)
        found, notes = new_offsets(admins.cluster, target, chosen, committed, given)
        for note in notes:
            say(f"note: {note}", err=True)
        if execute:
            _commit(admin, group_id, found)
    say(*_shown(group_id, committed, found, export=export, as_data=as_data))
    if not is_known and not execute:
        other = "; --type tree makes one without a master" if admins.tree is not None and of_type != "tree" else ""
        say(f"note: there is no group {group_id} yet: --execute creates it, of type {of_type}{other}", err=True)
    if not execute and not export:
        say("nothing was changed: --execute applies it", err=True)


def _check_settable(admin: GroupOperations, group_id: str) -> bool:
    """Whether the group exists; an error when only its members may set its offsets."""
    from ottla.client.groups.group_types import TREE
    from ottla.client.groups.groups import UnknownGroup

    try:
        found = admin.describe(group_id)
    except UnknownGroup:
        return False
    if found.is_live and found.kind != TREE:
        members = counted(len(found.members), "member")
        raise OttlaError(
            f"group {group_id} is {found.state} with {members}: only they may set its offsets",
            hint="stop its members first; `ottla group describe GROUP --members` shows them",
        )
    return True


def _given(target: Target, group_id: str) -> dict[TopicPartition, int]:
    return {} if target.from_file is None else read_offsets(target.from_file, group_id)


def _chosen(
    cluster: Cluster, group_id: str, topics: Sequence[str], committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    from ottla.cli.partition_names import partitions_named

    if topics:
        return partitions_named(cluster, topics)
    if not committed:
        raise OttlaError(f"group {group_id} has no committed offsets", hint="name the topics: --topic TOPIC")
    return [
        TopicPartition(topic, partition)
        for topic in sorted({each.topic for each in committed})
        for partition in cluster.partitions(topic)
    ]


def _check_partitions(cluster: Cluster, chosen: Sequence[TopicPartition]) -> None:
    for partition in chosen:
        cluster.leader(partition)


def _commit(admin: GroupOperations, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    from ottla.client.groups.group_types import CommittedOffset

    admin.commit(group_id, {partition: CommittedOffset(offset) for partition, offset in offsets.items()})


def _shown(
    group_id: str,
    committed: Mapping[TopicPartition, int],
    offsets: Mapping[TopicPartition, int],
    *,
    export: bool,
    as_data: bool,
) -> list[str]:
    if export:
        return write_offsets(offsets).splitlines()
    if as_data:
        return [
            line
            for each, offset in sorted(offsets.items())
            for line in data_lines(
                {
                    "group": group_id,
                    "topic": each.topic,
                    "partition": each.partition,
                    "current_offset": committed.get(each),
                    "new_offset": offset,
                }
            )
        ]
    rows = [(group_id, each.topic, each.partition, committed.get(each), new) for each, new in sorted(offsets.items())]
    return table(["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"], rows)

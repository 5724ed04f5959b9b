"""`ottla log repair`: makes a log that the broker refuses one that it opens, and shows before what is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla.cli.client_flags import output_flag
from ottla.cli.output import data_lines, say
from ottla.model.counted import counted
from ottla.model.errors import OttlaError
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.cli.log.stopped_directory import StoppedDirectory
    from ottla.maintenance.repair_plan import Loss, RepairPlan
    from ottla.storage.directory.flushed_ends import LogEnd, LogKey
    from ottla.storage.directory.log_checkpoints import LogStarts

# The exit status when damage was found and not repaired.
DAMAGED: Final = 1
_LOSSES_SHOWN: Final = 20


class _Records(NamedTuple):
    """What the data directory records of its logs."""

    flushed_ends: Mapping[LogKey, int]
    log_starts: LogStarts
    # Then the broker opens logs without a flushed end, too.
    was_clean: bool


class _Diagnosis(NamedTuple):
    """What is wrong with one partition."""

    partition: TopicPartition
    plan: RepairPlan
    topic_id: UUID
    rewrites_topic_id: bool = False
    # The record of its flushed end.
    is_end_lost: bool = False
    # After a clean stop the broker opens such a log all the same.
    was_clean: bool = False
    is_swap_begun: bool = False

    @property
    def is_damaged(self) -> bool:
        return self.plan.is_needed or self.rewrites_topic_id or (self.is_end_lost and not self.was_clean)

    @property
    def end(self) -> LogEnd:
        return self.topic_id, self.partition.partition, self.plan.end_offset


@click.command(name="repair")
@click.argument("data_dir", metavar="DIR", type=click.Path())
@click.argument("names", metavar="[TOPIC-PARTITION...]", nargs=-1)
@click.option("--execute", is_flag=True, help="Repair.  Without it nothing is changed, and the repair is only shown.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done: the default.")
@click.option(
    "--settings",
    "settings_path",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="For a lost tree: the topics' settings, a file as for `log import --config`, or a former `ottla backup`.",
)
@output_flag("One object for each damaged partition, and for a lost tree.")
def command(
    data_dir: str, names: tuple[str, ...], execute: bool, dry_run: bool, settings_path: Path | None, as_data: bool
) -> int:
    """Make damaged logs readable again, keeping every batch that is whole; rebuild a lost tree from the logs.

    \b
    ottla log repair /var/lib/ottla
    ottla log repair /var/lib/ottla clicks-0 --execute

    DIR is the data directory of a stopped broker.  All logs in it are read, or the named ones.  Whole batches
    keep their offsets; an empty batch replaces lost records, and consumers pass over it.  Files that are
    changed or removed are kept aside in DIR/TOPIC-PARTITION.TIME.damaged.

    Where tree.sqlite is missing or damaged, topics, their ids and partitions are those of the logs' directories.
    Settings are given by --settings, else retention is off.

    The exit status is 0 when nothing is damaged (any more) and 1 when something is.
    """
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")

    from ottla.cli.log.stopped_directory import StoppedDirectory
    from ottla.maintenance.repair import settle_swap

    with StoppedDirectory(data_dir, may_be_lost=True) as directory:
        is_tree_lost = directory.tree_problem is not None
        if settings_path is not None and not is_tree_lost:
            raise OttlaError(
                f"{directory.tree_path} is whole, so --settings has no use",
                hint="change the settings of a running broker's topics with `ottla topic alter`",
            )
        lost_ids = _rebuild_tree(directory, settings_path, execute=execute, as_data=as_data) if is_tree_lost else {}
        wanted = _wanted(directory, names)
        if execute:
            for partition in wanted:
                settle_swap(directory.disk, f"{directory.path}/{partition}", _backup_path(directory, partition))
            _restore_flushed_ends(directory)
        damaged = [found for found in _diagnoses(directory, wanted, lost_ids) if found.is_damaged]
        for found in damaged:
            backup = _repair(directory, found) if execute else None
            say(*(data_lines(_object(found, backup)) if as_data else _text(found, backup, is_repaired=execute)))
        gone = [] if names else _gone(directory)
    say(_summary(len(wanted), len(damaged), is_tree_lost=is_tree_lost, execute=execute), *gone, err=True)
    return DAMAGED if gone or ((damaged or is_tree_lost) and not execute) else 0


def _rebuild_tree(
    directory: StoppedDirectory, settings_path: Path | None, *, execute: bool, as_data: bool
) -> dict[str, UUID]:
    """Show the tree that the logs imply, and write it with `execute`; returns the topics' ids."""
    from ottla.cli.log.tree_rebuild import execute_rebuild, plan_rebuild, rebuild_object, rebuild_text

    plan = plan_rebuild(directory, settings_path)
    aside = None
    if execute:
        aside = execute_rebuild(directory, plan)
        directory.read_tree()
    say(*(data_lines(rebuild_object(plan, aside)) if as_data else rebuild_text(plan, aside, is_done=execute)))
    return plan.topic_ids()


def _wanted(directory: StoppedDirectory, names: Sequence[str]) -> list[TopicPartition]:
    present = directory.partitions()
    if not names:
        from ottla.storage.directory.partition_directory import is_strange

        return [each for each in present if not is_strange(directory.disk, f"{directory.path}/{each}")]
    by_name = {str(partition): partition for partition in present}
    for name in names:
        if name.rstrip("/") not in by_name:
            from ottla.model.nearest import nearest_name

            nearest = nearest_name(name, by_name)
            hint = f"did you mean {nearest}?" if nearest else "name partitions as their directories: orders-0"
            raise OttlaError(f"{directory.path} has no partition {name}", hint=hint)
    return [by_name[name.rstrip("/")] for name in names]


def _gone(directory: StoppedDirectory) -> list[str]:
    """Lines of what no repair can bring back."""
    from ottla.storage.directory.partition_directory import find_missing_logs

    ids = {name: topic.topic_id for name, topic in directory.topics.by_name.items()}
    return [
        f"{gone.topic_partition}: {gone.problem}; restore it from a backup, or delete the topic"
        for gone in find_missing_logs(directory.disk, directory.path, lambda: ids)
    ]


def _restore_flushed_ends(directory: StoppedDirectory) -> None:
    """A repair removes the mark of a clean stop, and logs without a record would be refused from then on."""
    from ottla.storage.checkpoints import has_clean_shutdown_mark
    from ottla.storage.directory.flushed_ends import FlushedEnds, restore_flushed_ends

    if not has_clean_shutdown_mark(directory.disk, directory.path):
        return
    present = [
        (partition, topic_id)
        for partition in directory.partitions()
        if (topic_id := _stored_topic_id(directory, partition)) is not None
    ]
    flushed_ends = FlushedEnds.open(directory.disk, directory.path)
    try:
        restore_flushed_ends(directory.disk, directory.path, flushed_ends, present)
    finally:
        flushed_ends.close()


def _diagnoses(
    directory: StoppedDirectory, wanted: Sequence[TopicPartition], lost_ids: Mapping[str, UUID]
) -> list[_Diagnosis]:
    """`lost_ids` are those of topics that a lost tree does not have yet."""
    from ottla.storage.checkpoints import has_clean_shutdown_mark
    from ottla.storage.directory.flushed_ends import read_flushed_ends
    from ottla.storage.directory.log_checkpoints import LogStarts

    disk, path = directory.disk, directory.path
    records = _Records(read_flushed_ends(disk, path), LogStarts(disk, path), has_clean_shutdown_mark(disk, path))
    ids = {**lost_ids, **{name: topic.topic_id for name, topic in directory.topics.by_name.items()}}
    return [_diagnose(directory, partition, records, ids) for partition in wanted]


def _diagnose(
    directory: StoppedDirectory, partition: TopicPartition, records: _Records, ids: Mapping[str, UUID]
) -> _Diagnosis:
    from ottla.maintenance.repair_plan import Recorded, plan_repair
    from ottla.storage.compaction.swap import is_swap_begun
    from ottla.storage.log_files import COMPACTED_FILE
    from ottla.storage.recovery.recovery import holds_records

    path = f"{directory.path}/{partition}"
    topic_id, is_readable = _topic_id(directory, partition, ids)
    policy = directory.configs.topic(partition.topic).get("cleanup.policy", "delete")
    may_have_gaps = "compact" in policy or directory.disk.exists(f"{path}/{COMPACTED_FILE}")
    flushed_end = records.flushed_ends.get((topic_id, partition.partition))
    recorded = Recorded(flushed_end, records.log_starts.start_of(partition), may_have_gaps)
    return _Diagnosis(
        partition,
        plan_repair(directory.disk, path, recorded),
        topic_id,
        rewrites_topic_id=not is_readable,
        is_end_lost=flushed_end is None and holds_records(directory.disk, path),
        was_clean=records.was_clean,
        is_swap_begun=is_swap_begun(directory.disk, path),
    )


def _topic_id(directory: StoppedDirectory, partition: TopicPartition, ids: Mapping[str, UUID]) -> tuple[UUID, bool]:
    """The id of the partition's topic, and whether its own file says so; else the tree does."""
    stored = _stored_topic_id(directory, partition)
    if stored is not None:
        return stored, True
    topic_id = ids.get(partition.topic)
    if topic_id is None:
        raise OttlaError(
            f"{directory.path}/{partition} does not say which topic it belongs to, "
            f"and the broker has no topic {partition.topic}",
            hint="move the directory away, or restore its partition.metadata",
        )
    return topic_id, False


def _stored_topic_id(directory: StoppedDirectory, partition: TopicPartition) -> UUID | None:
    from ottla.storage.checkpoints import DamagedCheckpoint, read_topic_id

    try:
        return read_topic_id(directory.disk, f"{directory.path}/{partition}")
    except DamagedCheckpoint:
        return None


def _repair(directory: StoppedDirectory, found: _Diagnosis) -> str | None:
    """The path of what was set aside; None when no file had to change."""
    from ottla.maintenance.repair import execute_repair
    from ottla.storage.directory.flushed_ends import FlushedEnds

    backup = None
    if found.plan.is_needed or found.rewrites_topic_id:
        backup = _backup_path(directory, found.partition)
        topic_id = found.topic_id if found.rewrites_topic_id else None
        execute_repair(directory.disk, found.plan, backup, topic_id)
    if found.is_end_lost:
        # Last: until then the broker refuses the log.
        flushed_ends = FlushedEnds.open(directory.disk, directory.path)
        try:
            flushed_ends.add([found.end])
            flushed_ends.sync()
        finally:
            flushed_ends.close()
    return backup


def _backup_path(directory: StoppedDirectory, partition: TopicPartition) -> str:
    """An unused name beside the partition's directory."""
    from ottla.maintenance.repair import BACKUP_SUFFIX
    from ottla.runtime.clock import SystemClock

    moment = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    stem = f"{directory.path}/{partition}.{moment:%Y%m%dT%H%M%SZ}"
    path, number = f"{stem}{BACKUP_SUFFIX}", 1
    while directory.disk.exists(path):
        number += 1
        path = f"{stem}.{number}{BACKUP_SUFFIX}"
    return path


def _text(found: _Diagnosis, backup: str | None, *, is_repaired: bool) -> list[str]:
    plan = found.plan
    lines = [f"{found.partition}: {_verdict(found)}"]
    lines += [f"  {_loss_line(loss)}" for loss in plan.losses[:_LOSSES_SHOWN]]
    if len(plan.losses) > _LOSSES_SHOWN:
        lines.append(f"  and {len(plan.losses) - _LOSSES_SHOWN} further places (--json shows all)")
    if plan.epochs_corrected:
        batches = counted(plan.epochs_corrected, "batch", "batches")
        lines.append(f"  the leader epochs of {batches} are corrected; their records are whole")
    if found.is_end_lost:
        lines.append(
            f"  flushed-ends has no record of it: nothing proves that it ended at offset {plan.end_offset}, "
            "and records after that may be missing"
        )
    if plan.tail_bytes:
        tail = counted(plan.tail_bytes, "byte")
        lines.append(f"  cut off: {tail} after offset {plan.end_offset} that are no whole batch")
    if found.rewrites_topic_id:
        lines.append("  partition.metadata is missing or damaged: it is written again with the topic's id")
    if found.is_swap_begun:
        lines.append("  a compaction was in progress: --execute completes it first, which may leave less to repair")
    if backup is not None:
        lines.append(f"  repaired; the former files are kept in {backup}")
    elif is_repaired:
        lines.append(f"  repaired: the record says {plan.end_offset} from now on; no other file was changed")
    return lines


def _verdict(found: _Diagnosis) -> str:
    plan = found.plan
    if not plan.losses:
        is_certain = not (found.is_end_lost or plan.tail_bytes)
        lost = "no record is lost" if is_certain else "records may be lost at its end"
        return f"damaged, {lost}, kept: {counted(plan.kept_records, 'offset')}"
    offsets, places = counted(plan.lost_offsets_count, "offset"), counted(len(plan.losses), "place")
    return f"lost: {offsets} in {places} ({counted(plan.lost_bytes, 'damaged byte')}); kept: {plan.kept_records}"


def _loss_line(loss: Loss) -> str:
    where = (
        loss.path if loss.position < 0 else f"{loss.path} position {loss.position}, {counted(loss.size_bytes, 'byte')}"
    )
    return f"offsets {loss.first_offset} to {loss.end_offset - 1}: {where}: {loss.reason}"


def _object(found: _Diagnosis, backup: str | None) -> dict[str, object]:
    from ottla.maintenance.repair import report

    shown = {"partition": str(found.partition), **report(found.plan)}
    shown["metadata_rewritten"] = found.rewrites_topic_id
    shown["flushed_end_lost"] = found.is_end_lost
    shown["backup"] = backup
    return shown


def _summary(read_count: int, damaged_count: int, *, is_tree_lost: bool, execute: bool) -> str:
    if is_tree_lost and execute:
        return f"read {counted(read_count, 'partition')}, repaired {damaged_count} and the tree: start the broker again"
    if is_tree_lost:
        return (
            f"read {counted(read_count, 'partition')}, {damaged_count} damaged, and the tree is lost: nothing was "
            "changed, --execute repairs"
        )
    if not damaged_count:
        return f"read {counted(read_count, 'partition')}: nothing is damaged"
    if execute:
        return f"read {counted(read_count, 'partition')}, repaired {damaged_count}: start the broker again"
    return f"read {counted(read_count, 'partition')}, {damaged_count} damaged: nothing was changed, --execute repairs"

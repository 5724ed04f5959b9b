"""`ottla log`: inspect and repair a data directory, import one from Apache Kafka."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence

import click

from ottla.cli.client_flags import output_flag
from ottla.cli.log import import_verb as log_import
from ottla.cli.log import repair as log_repair
from ottla.cli.log.lines import batch_line, batch_object, finding_line, record_line, record_object
from ottla.cli.output import data_lines, say
from ottla.cli.verb_group import VerbGroup
from ottla.maintenance.inspect import (
    DumpedBatch,
    Finding,
    Severity,
    dump_segment,
    flushed_end_of,
    verify_flushed_ends,
    verify_log,
)
from ottla.maintenance.manifest import damages as backup_damages
from ottla.model.counted import counted
from ottla.model.errors import OttlaError, WireError
from ottla.records.record import decode_batch
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.checkpoints import META_PROPERTIES_FILE
from ottla.storage.directory.directory_identity import BACKUP_MANIFEST_FILE
from ottla.storage.directory.directory_tree import TREE_FILE, is_shared
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.directory.partition_directory import find_missing_logs, is_strange
from ottla.storage.directory.process_places import directories_of, finishing_hint, has_unfinished_resize
from ottla.storage.log_files import LOG_SUFFIX, base_offsets_in, segment_file_name, topic_partition_of

# The exit status when a batch is damaged or cannot be decoded.
FOUND_DAMAGE = 1

_PATHS = click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(exists=True))


@click.group(name="log", cls=VerbGroup)
def command() -> None:
    """Inspect a data directory (dump, verify: also beside a running broker), repair it, import one."""


command.add_command(log_repair.command)
command.add_command(log_import.command)


@command.command()
@_PATHS
@click.option("--records", "shows_records", is_flag=True, help="Also decode each batch and show its records.")
@output_flag("One object for each batch (and record).")
def dump(paths: tuple[str, ...], shows_records: bool, as_data: bool) -> int:
    """Show the batches of segments: offsets, times, sizes, codecs, producers.

    \b
    ottla log dump /var/lib/ottla/clicks-0 --records

    PATH is a segment's .log file, or a partition's directory for all of its segments.
    """
    disk = PosixDisk()
    damages_count = 0
    for segment_path in (segment for path in paths for segment in _segments(path)):
        if not as_data:
            say(f"# {segment_path}")
        for item in dump_segment(disk, segment_path):
            if isinstance(item, Finding):
                damages_count += 1
                say(finding_line(item), err=True)
                continue
            say(*(data_lines(batch_object(item)) if as_data else [batch_line(item)]))
            if shows_records:
                damages_count += _dump_records(disk, item, as_data)
    return FOUND_DAMAGE if damages_count else 0


@command.command()
@_PATHS
@click.option("--deep", "is_deep", is_flag=True, help="Also check every checksum, decompress and decode every record.")
def verify(paths: tuple[str, ...], is_deep: bool) -> int:
    """Check segments, their indexes, and the record of what was flushed; the exit status is 1 when there is damage.

    \b
    ottla log verify /var/lib/ottla --deep

    PATH is a data directory, with those of its further processes, a backup, or one partition's directory.  Beside a
    running broker, a batch that is just being written shows as a truncated tail.
    """
    disk = PosixDisk()
    places = [place for path in paths for place in directories_of(disk, path)]
    directories = [
        directory for place in places for directory in _partition_directories(place, is_of_process=place not in paths)
    ]
    damages_count = notes_count = 0
    whole = {os.path.abspath(path) for path in places}
    for finding in (*_unfinished(disk, paths), *_findings(disk, directories, whole, is_deep=is_deep)):
        say(finding_line(finding))
        if finding.severity is Severity.DAMAGE:
            damages_count += 1
        else:
            notes_count += 1
    depth = "every record" if is_deep else "headers and indexes"
    say(
        f"checked {depth} of {counted(len(directories), 'partition')}: "
        f"{counted(damages_count, 'damage')}, {counted(notes_count, 'note')}",
        err=True,
    )
    return FOUND_DAMAGE if damages_count else 0


def _unfinished(disk: PosixDisk, paths: Sequence[str]) -> Iterator[Finding]:
    for path in paths:
        if has_unfinished_resize(disk, path):
            problem = f"a change of the number of processes was interrupted: {finishing_hint(path)}"
            yield Finding(Severity.NOTE, path, -1, -1, problem)


def _findings(
    disk: PosixDisk, directories: Sequence[str], whole: Collection[str], *, is_deep: bool
) -> Iterator[Finding]:
    """`whole` has the data directories of which all is checked."""
    # SQLite is needed here only.
    from ottla.cli.log.copied_tree import lost_tree_of

    by_data_dir: dict[str, list[str]] = {}
    for directory in directories:
        by_data_dir.setdefault(os.path.dirname(os.path.abspath(directory)), []).append(directory)
    for data_dir, logs in by_data_dir.items():
        if disk.exists(f"{data_dir}/{BACKUP_MANIFEST_FILE}"):
            for path, problem in backup_damages(disk, data_dir, deep=is_deep):
                yield Finding(Severity.DAMAGE, path, -1, -1, problem)
        lost = lost_tree_of(disk, data_dir)
        if lost is not None:
            yield Finding(Severity.DAMAGE, lost.path, -1, -1, f"{lost}: the broker refuses to start")
        elif data_dir in whole:
            yield from _gone(disk, data_dir)
        yield from verify_flushed_ends(disk, data_dir, logs)
    for data_dir, logs in by_data_dir.items():
        # Before the logs: beside a running broker those only grow.
        ends = read_flushed_ends(disk, data_dir)
        for directory in logs:
            if is_strange(disk, directory):
                problem = "it is no log, and only has the name of a partition's: the broker leaves it as it is"
                yield Finding(Severity.NOTE, directory, -1, -1, problem)
                continue
            flushed_end = flushed_end_of(disk, directory, ends)
            yield from verify_log(disk, directory, deep=is_deep, flushed_end=flushed_end)


def _gone(disk: PosixDisk, data_dir: str) -> Iterator[Finding]:
    from ottla.cli.log.copied_tree import copied_topic_ids
    from ottla.coordination.embedded.errors import TreeStoreError

    path = f"{data_dir}/{TREE_FILE}"
    if not disk.exists(path) or is_shared(disk, data_dir):
        return
    with contextlib.suppress(TreeStoreError):  # a backup's; its own check reports it
        for gone in find_missing_logs(disk, data_dir, lambda: copied_topic_ids(path)):
            yield Finding(Severity.DAMAGE, f"{data_dir}/{gone.topic_partition}", -1, -1, gone.problem)


def _dump_records(disk: PosixDisk, batch: DumpedBatch, as_data: bool) -> int:
    """Show a batch's records; returns 1 when it cannot be decoded."""
    file = disk.open(batch.path, read_only=True)
    try:
        data = file.read_at(batch.position, batch.header.size_bytes)
    finally:
        file.close()
    try:
        records = decode_batch(memoryview(data))
    except WireError as error:
        damage = Finding(Severity.DAMAGE, batch.path, batch.position, batch.header.base_offset, str(error))
        say(finding_line(damage), err=True)
        return 1
    for record in records:
        say(*(data_lines(record_object(record)) if as_data else ["  " + record_line(record)]))
    return 0


def _segments(path: str) -> Sequence[str]:
    if not os.path.isdir(path):
        if not path.endswith(LOG_SUFFIX):
            raise OttlaError(f"{path} is not a segment", hint="name a .log file or a partition's directory")
        return [path]
    base_offsets = base_offsets_in(os.listdir(path))
    if not base_offsets:
        raise OttlaError(f"{path} contains no segment", hint="name a partition's directory, such as DIR/orders-0")
    return [os.path.join(path, segment_file_name(base_offset)) for base_offset in base_offsets]


def _partition_directories(path: str, *, is_of_process: bool = False) -> Iterator[str]:
    """The directory itself when it is a partition's, else its partitions' directories.

    `is_of_process`: it is the data directory of a further process, with a name like a partition's, and may be empty.
    """
    if not os.path.isdir(path):
        raise OttlaError(f"{path} is not a directory", hint="name a data directory or a partition's directory")
    names = sorted(os.listdir(path))
    has_name = topic_partition_of(os.path.basename(os.path.abspath(path))) is not None and not is_of_process
    if base_offsets_in(names) or (has_name and META_PROPERTIES_FILE not in names):
        yield path
        return
    found = [name for name in names if topic_partition_of(name) is not None]
    if not found and not is_of_process:
        raise OttlaError(f"{path} contains no partitions", hint="name a data directory or a partition's directory")
    for name in found:
        yield os.path.join(path, name)

"""Repair of one damaged log, offline: executes what `repair_plan` planned, and keeps a backup of the replaced files.

The order makes every crash harmless: the backup is whole and durable before anything changes, a file is replaced in
one step, and what is not done yet is still damage below the flushed end, so that the log stays refused and repair can
start again.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from ottla.maintenance.repair_plan import Copied, NewSegment, RepairPlan
from ottla.model.limits import MIB
from ottla.runtime.disk import Disk, File, replace_file, write_fully
from ottla.storage import checkpoints
from ottla.storage.compaction.swap import SWAP_FILE, complete_swap, is_swap_begun
from ottla.storage.errors import CorruptLog, DiskFull
from ottla.storage.log_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, leftovers_in, segment_file_name
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX

REPORT_FILE: Final = "repair.json"
# A directory of this ending is no partition's: brokers ignore it.
BACKUP_SUFFIX: Final = ".damaged"

_COPY_BYTES: Final = 4 * MIB
_ROOM_LEFT_BYTES: Final = 16 * MIB
_NO_LINKS: Final = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP)


def execute_repair(disk: Disk, plan: RepairPlan, backup_path: str, topic_id: UUID | None = None) -> None:
    """Execute the plan, durably; `backup_path` must not exist yet, beside the partition's directory.

    With a `topic_id` the missing or damaged file that holds it is rewritten.  Raises `OSError`, `DiskFull`; after
    that, and after a crash, plan again.
    """
    directory = plan.directory
    root = directory.rpartition("/")[0] or "."
    _check_room(disk, plan)
    names = disk.list_directory(directory)
    replaced = [segment_file_name(each.base_offset) for each in plan.segments]
    stale = [
        segment_file_name(each.base_offset, suffix)
        for each in plan.segments
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
    ]
    # Indexes and producers are rebuilt from the batches.
    stale += [*plan.lost_side_files, *(name for name in names if name.endswith(SNAPSHOT_SUFFIX))]
    metadata = [checkpoints.PARTITION_METADATA_FILE] if topic_id is not None else []
    doomed = [name for name in dict.fromkeys([*replaced, *stale, *metadata]) if name in names]
    _set_aside(disk, plan, backup_path, doomed)
    disk.sync_directory(root)
    # After a clean stop the next start would not read the log: now it must.
    checkpoints.take_clean_shutdown_mark(disk, root)
    for name in stale:
        if name in names and name not in plan.lost_side_files:
            disk.remove(f"{directory}/{name}")
    for segment in plan.segments:
        _write_segment(disk, directory, segment, is_there=segment_file_name(segment.base_offset) in names)
    disk.sync_directory(directory)
    # Last: these prove a missing segment, whose offsets are filled only now.
    for name in plan.lost_side_files:
        if disk.exists(f"{directory}/{name}"):
            disk.remove(f"{directory}/{name}")
    if topic_id is not None:
        checkpoints.write_topic_id(disk, directory, topic_id)
    disk.sync_directory(directory)


def settle_swap(disk: Disk, directory: str, backup_path: str) -> None:
    """Complete a compaction that a crash cut short, as the broker would.  If its swap file is damaged the replacements
    are unknown: that file and the files under unfinished names are set aside.
    """
    if not is_swap_begun(disk, directory):
        return
    try:
        complete_swap(disk, directory)
    except CorruptLog:
        disk.make_directory(backup_path)
        for name in [SWAP_FILE, *leftovers_in(disk.list_directory(directory))]:
            disk.rename(f"{directory}/{name}", f"{backup_path}/{name}")
        disk.sync_directory(backup_path)
        disk.sync_directory(directory)


def _check_room(disk: Disk, plan: RepairPlan) -> None:
    needed_bytes = sum(segment.size_bytes for segment in plan.segments) + _ROOM_LEFT_BYTES
    if disk.free_bytes(plan.directory) < needed_bytes:
        raise DiskFull(f"repairing {plan.directory} needs {needed_bytes} bytes, and the disk has fewer")


def _set_aside(disk: Disk, plan: RepairPlan, backup_path: str, names: Iterable[str]) -> None:
    """Every file that will be removed or changed gets a second name: the files themselves are never written to."""
    disk.make_directory(backup_path)
    for name in names:
        source, target = f"{plan.directory}/{name}", f"{backup_path}/{name}"
        try:
            disk.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write_whole(disk, target, lambda file, source=source: _copy_whole(disk, source, file))  # type: ignore[misc]
    replace_file(disk, f"{backup_path}/{REPORT_FILE}", json.dumps(report(plan), indent=1).encode())
    disk.sync_directory(backup_path)


def report(plan: RepairPlan) -> dict[str, object]:
    """The plan as a JSON object."""
    return {
        "directory": plan.directory,
        "kept_offsets": plan.kept_records,
        "lost_offsets": plan.lost_offsets_count,
        "lost_bytes": plan.lost_bytes,
        "tail_bytes": plan.tail_bytes,
        "epochs_corrected": plan.epochs_corrected,
        "losses": [loss._asdict() for loss in plan.losses],
        "files_rewritten": [segment_file_name(segment.base_offset) for segment in plan.segments],
    }


def _write_segment(disk: Disk, directory: str, segment: NewSegment, *, is_there: bool) -> None:
    path = f"{directory}/{segment_file_name(segment.base_offset)}"
    source = disk.open(path, read_only=True) if is_there else None

    def write(file: File) -> None:
        position = 0
        for part in segment.parts:
            if isinstance(part, Copied):
                assert source is not None
                _copy_run(source, part.position, part.size_bytes, file, position)
                position += part.size_bytes
            else:
                write_fully(file, position, part)
                position += len(part)

    try:
        _write_whole(disk, path, write)
    finally:
        if source is not None:
            source.close()


def _write_whole(disk: Disk, path: str, write: Callable[[File], None]) -> None:
    """A file under its name only when it is whole and durable."""
    temporary = path + ".tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        write(file)
        file.sync_data()
    finally:
        file.close()
    disk.rename(temporary, path)


def _copy_whole(disk: Disk, source_path: str, target: File) -> None:
    source = disk.open(source_path, read_only=True)
    try:
        _copy_run(source, 0, source.size_bytes(), target, 0)
    finally:
        source.close()


def _copy_run(source: File, position: int, size_bytes: int, target: File, target_position: int) -> None:
    done = 0
    while done < size_bytes:
        chunk = source.read_at(position + done, min(_COPY_BYTES, size_bytes - done))
        if not chunk:
            raise OSError(errno.EIO, "the file ends too early", source.path)
        write_fully(target, target_position + done, chunk)
        done += len(chunk)

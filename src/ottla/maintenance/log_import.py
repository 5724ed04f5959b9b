"""Importing another broker's logs: files copied or hard-linked into a data directory of a stopped broker.

Of the files of a partition's directory, a running log writes in place only to the active segment, which is the last
one, and to indexes, which it may rebuild: those are always copied.  Closed segments and snapshots are only ever read,
renamed and removed, so they may be links: the source keeps its names and its bytes.

A partition's directory has its name only when it is whole and durable; its topic is registered after that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.maintenance.kafka_directory import NotImportable
from ottla.maintenance.source_log import SourceLog, SourceSegment
from ottla.model.limits import MIB
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import FlushedEnds
from ottla.storage.directory.housekeeping import remove_tree
from ottla.storage.directory.log_starts import LogStarts
from ottla.storage.errors import DiskFull, StorageError
from ottla.storage.log_files import COMPACTED_FILE, INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_file_name
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX

# No partition's name ends so: brokers ignore the remains of a crash, and the next import removes them.
UNFINISHED_SUFFIX: Final = ".importing"

_COPY_BYTES: Final = 4 * MIB
_ROOM_LEFT_BYTES: Final = 64 * MIB


class LogImport:
    """One run: `check_former` and `check_room`, `copy` each log, then `publish` them all.

    After that their topics may be registered.
    """

    def __init__(self, disk: Disk, data_dir: str, *, links: bool) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._links = links

    def check_room(self, logs: Iterable[SourceLog]) -> None:
        """Raises `DiskFull` when the copies would not fit."""
        needed = sum(_copied_bytes(log, links=self._links) for log in logs) + _ROOM_LEFT_BYTES
        free = self._disk.free_bytes(self._data_dir)
        if free < needed:
            raise DiskFull(
                f"the import needs {needed} bytes in {self._data_dir}, and {free} are free",
                hint="make room, import fewer topics (--topic), or link the files (--link) on one file system",
            )

    def check_former(self, logs: Iterable[SourceLog]) -> None:
        """Raises `StorageError` for a directory of a log's name: only remains of an interrupted import are removed."""
        for log in logs:
            path = f"{self._data_dir}/{log.partition}"
            if self._disk.exists(path) and checkpoints.read_topic_id(self._disk, path) != log.topic_id:
                raise StorageError(
                    f"{path} is there already, and it is another topic's",
                    hint=f"move it away, or leave the topic out: --exclude {log.partition.topic}",
                )

    def copy(self, log: SourceLog) -> None:
        """Create the partition's directory under an unfinished name.  Raises `StorageError`, `OSError`."""
        # Before anything is written, so that the sync of `publish` reports every lost write-back.
        self._disk.hold_directory(self._data_dir)
        target = self._unfinished_path(log)
        if self._disk.exists(target):
            remove_tree(self._disk, target)
        self._disk.make_directory(target)
        for segment in log.segments[:-1]:
            self._take_closed(log.path, target, segment)
        active = log.segments[-1]
        name = segment_file_name(active.base_offset)
        self._copy_file(f"{log.path}/{name}", f"{target}/{name}", active.size_bytes)
        for name in self._disk.list_directory(log.path):
            # A snapshot above the end would describe batches that were lost with a torn tail.
            if name.endswith(SNAPSHOT_SUFFIX) and name[:20].isdecimal() and int(name[:20]) <= log.log_end_offset:
                self._copy_file(f"{log.path}/{name}", f"{target}/{name}")
        if log.has_gaps:
            self._write(f"{target}/{COMPACTED_FILE}", b"")
        self._write(f"{target}/{checkpoints.LEADER_EPOCH_FILE}", checkpoints.format_epochs(self._epochs_of(log)))
        self._write(f"{target}/{checkpoints.PARTITION_METADATA_FILE}", checkpoints.partition_metadata(log.topic_id))

    def publish(self, logs: Sequence[SourceLog]) -> None:
        """Give the directories their names; everything in them is durable before.  Call `check_former` first."""
        self._disk.sync_file_system(self._data_dir)
        ends = FlushedEnds.open(self._disk, self._data_dir)
        try:
            ends.add((log.topic_id, log.partition.partition, log.log_end_offset) for log in logs)
            ends.sync()
        finally:
            ends.close()
        starts = LogStarts(self._disk, self._data_dir)
        for log in logs:
            starts.set(log.partition, log.log_start_offset)
        starts.write()
        for log in logs:
            target = f"{self._data_dir}/{log.partition}"
            if self._disk.exists(target):
                remove_tree(self._disk, target)
            self._disk.rename(self._unfinished_path(log), target)
        self._disk.sync_directory(self._data_dir)
        self._disk.release_directory(self._data_dir)

    def _unfinished_path(self, log: SourceLog) -> str:
        return f"{self._data_dir}/{log.partition}{UNFINISHED_SUFFIX}"

    def _take_closed(self, source: str, target: str, segment: SourceSegment) -> None:
        name = segment_file_name(segment.base_offset)
        if self._links:
            self._link(f"{source}/{name}", f"{target}/{name}")
        else:
            self._copy_file(f"{source}/{name}", f"{target}/{name}", segment.size_bytes)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = segment_file_name(segment.base_offset, suffix)
            if self._disk.exists(f"{source}/{name}"):
                self._copy_file(f"{source}/{name}", f"{target}/{name}")

    def _link(self, source: str, target: str) -> None:
        # A running log opens its segments for writing although it writes only to the last one.
        if not os.access(source, os.R_OK | os.W_OK):
            raise NotImportable(f"{source} may not be opened by this user", hint="copy the files instead: --copy")
        try:
            self._disk.link(source, target)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
            raise NotImportable(
                f"{source} cannot be linked into {self._data_dir}: {error.strerror}",
                hint="links need both directories on one file system; copy the files instead: --copy",
            ) from error

    def _copy_file(self, source_path: str, target_path: str, size_bytes: int | None = None) -> None:
        source = self._disk.open(source_path, read_only=True)
        try:
            target = self._disk.open(target_path, create=True)
            try:
                _copy(source, target, source.size_bytes() if size_bytes is None else size_bytes)
            finally:
                target.close()
        finally:
            source.close()

    def _write(self, path: str, content: bytes) -> None:
        file = self._disk.open(path, create=True)
        try:
            write_fully(file, 0, content)
        finally:
            file.close()

    def _epochs_of(self, log: SourceLog) -> list[checkpoints.EpochStart]:
        """The source's epochs; none when it has no such file or a damaged one: the batches have them too."""
        path = f"{log.path}/{checkpoints.LEADER_EPOCH_FILE}"
        if not self._disk.exists(path):
            return []
        try:
            epochs = checkpoints.parse_epochs(read_file(self._disk, path), path)
        except checkpoints.DamagedCheckpoint:
            return []
        return [entry for entry in epochs if entry.start_offset <= log.log_end_offset]


def latest_epoch(disk: Disk, log: SourceLog) -> int:
    """The greatest leader epoch that the source knows of this log; its checkpoint may be ahead of its batches."""
    path = f"{log.path}/{checkpoints.LEADER_EPOCH_FILE}"
    try:
        epochs = checkpoints.parse_epochs(read_file(disk, path), path) if disk.exists(path) else []
    except checkpoints.DamagedCheckpoint:
        epochs = []
    return max([log.leader_epoch, *(entry.epoch for entry in epochs)])


def _copied_bytes(log: SourceLog, *, links: bool) -> int:
    return log.segments[-1].size_bytes if links else log.size_bytes


def _copy(source: File, target: File, size_bytes: int) -> None:
    done = 0
    while done < size_bytes:
        chunk = source.read_at(done, min(_COPY_BYTES, size_bytes - done))
        if not chunk:
            raise OSError(errno.EIO, "the file ends too early", source.path)
        write_fully(target, done, chunk)
        done += len(chunk)

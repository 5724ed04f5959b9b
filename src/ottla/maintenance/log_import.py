"""Importing another broker's logs: files copied or hard-linked into a data directory of a stopped broker.

Of the files of a partition's directory, a running log writes in place only to the active segment, which is the last
one, and to indexes, which it may rebuild: those are always copied.  Closed segments and snapshots are only ever read,
renamed and removed, so they may be links: the source keeps its names and its bytes.

Before a copy each source log is read once: whether every batch is whole, and can be served as it is.

A partition's directory has its name only when it is whole and durable; its topic is registered after that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from ottla.maintenance.kafka_directory import KafkaDirectory, NotImportable
from ottla.maintenance.salvage import Bounds, whole_batch_after
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.model.limits import MIB
from ottla.records.end_marker import EMPTIED, EndMarker, read_end_marker
from ottla.records.header import CONTROL_BIT, LOG_OVERHEAD_BYTES, TRANSACTIONAL_BIT, BatchHeader
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import FlushedEnds
from ottla.storage.directory.log_checkpoints import LogStarts
from ottla.storage.directory.removals import remove_tree
from ottla.storage.errors import DiskFull, StorageError
from ottla.storage.log_files import (
    COMPACTED_FILE,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    base_offsets_in,
    segment_file_name,
)
from ottla.storage.producers.aborted_transactions import AbortedIndex
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segment.batch_scan import BatchScan, BatchTuple
from ottla.storage.segment.segment import RELATIVE_OFFSET_MAX

# No partition's name ends so: brokers ignore the remains of a crash, and the next import removes them.
UNFINISHED_SUFFIX: Final = ".importing"

_COPY_BYTES: Final = 4 * MIB
_ROOM_LEFT_BYTES: Final = 64 * MIB
_DAMAGED: Final = (
    "nothing was imported; let Apache Kafka start and stop on the directory once, or leave the topic out with --exclude"
)


class SourceSegment(NamedTuple):
    """`size_bytes` ends with the last whole batch."""

    base_offset: int
    size_bytes: int


@dataclass(slots=True)
class SourceLog:
    """What a partition holds.  `log_end_offset` is exclusive; `leader_epoch` is the greatest of its batches, or -1."""

    partition: TopicPartition
    topic_id: UUID
    path: str
    log_start_offset: int
    log_end_offset: int = 0
    leader_epoch: int = -1
    records_count: int = 0
    batches_count: int = 0
    transactional_batches_count: int = 0
    # By the base offset of the segment that they end in.
    aborted: dict[int, AbortedIndex] = field(default_factory=dict)
    # After the last whole batch, in the last segment: a write that a crash cut short.
    torn_tail_bytes: int = 0
    has_gaps: bool = False
    segments: list[SourceSegment] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def read_source_log(source: KafkaDirectory, partition: TopicPartition) -> SourceLog:
    """Read every batch with its checksum.  Raises `NotImportable` with the problem and its place."""
    return _Reading(source, partition).run()


class _Reading:
    def __init__(self, source: KafkaDirectory, partition: TopicPartition) -> None:
        self._disk: Disk = source.disk
        path = source.partition_path(partition)
        self._was_clean = source.was_clean
        self._recovery_point = source.recovery_point_of(partition)
        self._found = SourceLog(partition, source.topic_id_of(partition), path, source.log_start_of(partition))
        self._transactions = LogTransactions(ProducerStates())

    def run(self) -> SourceLog:
        found = self._found
        base_offsets = base_offsets_in(self._disk.list_directory(found.path))
        if not base_offsets:
            raise NotImportable(f"{found.path} holds no segment")
        found.log_end_offset = base_offsets[0]
        for base_offset in base_offsets:
            if base_offset < found.log_end_offset:
                raise NotImportable(
                    f"{found.path}: the segment of {base_offset} starts below offset {found.log_end_offset}, where the "
                    "one before ends",
                    hint=_DAMAGED,
                )
            found.has_gaps = found.has_gaps or base_offset > found.log_end_offset
            found.log_end_offset = base_offset
            self._read_segment(base_offset, is_last=base_offset == base_offsets[-1])
        if found.log_end_offset < self._recovery_point:
            raise NotImportable(
                f"{found.partition} ends with offset {found.log_end_offset}, and its broker had flushed it up to "
                f"offset {self._recovery_point}",
                hint=_lost(found.partition),
            )
        found.log_start_offset = min(max(found.log_start_offset, base_offsets[0]), found.log_end_offset)
        first_open_offset = self._transactions.first_open_offset()
        if first_open_offset is not None:
            # Its coordinator's decision is not imported: neither outcome may be assumed.
            raise NotImportable(
                f"{found.partition} has a transaction that is still open, from offset {first_open_offset} on",
                hint="let its producer end it under Apache Kafka (or wait for transaction.timeout.ms), "
                f"or leave the topic out: --exclude {found.partition.topic}",
            )
        return found

    def _read_segment(self, base_offset: int, *, is_last: bool) -> None:
        path = f"{self._found.path}/{segment_file_name(base_offset)}"
        file = self._disk.open(path, read_only=True)
        try:
            size_bytes = file.size_bytes()
            scan = BatchScan(file, 0, size_bytes)
            position = 0
            for head in scan.checked_heads():
                self._read_batch(file, position, base_offset, head)
                position += LOG_OVERHEAD_BYTES + head[1]
            if scan.problem is not None:
                self._refuse_damage(file, position, scan.problem, is_last=is_last)
        finally:
            file.close()
        if scan.problem is not None:
            self._found.torn_tail_bytes = size_bytes - position
        self._found.segments.append(SourceSegment(base_offset, position))

    def _refuse_damage(self, file: File, position: int, problem: str, *, is_last: bool) -> None:
        """A torn tail is what a crash leaves at the end of the last segment: after everything that was flushed, and
        nothing whole after it.  All else was whole once, and acknowledged.
        """
        found = self._found
        where = f"{file.path} at position {position} (offset {found.log_end_offset})"
        if problem.startswith("magic"):
            raise NotImportable(f"{where}: {problem}", hint=_DAMAGED)
        if not is_last or self._was_clean or found.log_end_offset < self._recovery_point:
            raise NotImportable(f"{where}: {problem}, and this was whole on the disk once", hint=_lost(found.partition))
        following = whole_batch_after(file, position, Bounds(found.log_end_offset, None))
        if following is not None:
            raise NotImportable(
                f"{where}: {problem}, and a whole batch follows it at position {following}",
                hint=_lost(found.partition),
            )

    def _read_batch(self, file: File, position: int, base_offset: int, head: BatchTuple) -> None:
        found = self._found
        last_offset = head[0] + head[6]
        if head[0] < found.log_end_offset or last_offset - base_offset > RELATIVE_OFFSET_MAX:
            raise NotImportable(
                f"{file.path} at position {position}: a batch with base offset {head[0]} where offset "
                f"{found.log_end_offset} is expected",
                hint=_DAMAGED,
            )
        if head[2] < found.leader_epoch:
            raise NotImportable(
                f"{file.path} at position {position}: leader epoch {head[2]} after epoch {found.leader_epoch}",
                hint=_DAMAGED,
            )
        found.has_gaps = found.has_gaps or head[0] > found.log_end_offset
        found.leader_epoch = head[2]
        found.log_end_offset = last_offset + 1
        found.batches_count += 1
        if not head[5] & CONTROL_BIT:
            found.records_count += head[12]
            found.transactional_batches_count += bool(head[5] & TRANSACTIONAL_BIT)
        if head[5] & TRANSACTIONAL_BIT and head[9] >= 0:
            marker = self._marker(file, position, head) if head[5] & CONTROL_BIT else None
            aborted = self._transactions.replay(BatchHeader._make(head), marker, 0)
            if aborted is not None:
                found.aborted.setdefault(base_offset, AbortedIndex()).add(aborted)

    def _marker(self, file: File, position: int, head: BatchTuple) -> EndMarker | None:
        if not head[12]:
            return EMPTIED
        try:
            return read_end_marker(memoryview(file.read_at(position, LOG_OVERHEAD_BYTES + head[1])))
        except WireError as error:
            raise NotImportable(f"{file.path} at position {position}: {error}", hint=_DAMAGED) from error


def _lost(partition: TopicPartition) -> str:
    return (
        "nothing was imported, for acknowledged records would be missing: take the directory from another replica or a "
        f"backup, or leave the topic out: --exclude {partition.topic}"
    )


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
        for base_offset, aborted in log.aborted.items():
            name = segment_file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
            self._write(f"{target}/{name}", aborted.to_bytes())
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

"""One partition of another broker, read once: whether every batch is whole, and can be served as it is."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from ottla.maintenance.kafka_directory import KafkaDirectory, NotImportable
from ottla.maintenance.salvage import Bounds, whole_batch_behind
from ottla.model.errors import WireError
from ottla.model.identifiers import TopicPartition
from ottla.records.header import CONTROL_BIT, LOG_OVERHEAD_BYTES, TRANSACTIONAL_BIT
from ottla.records.record import decode_batch
from ottla.runtime.disk import Disk, File
from ottla.storage.log_files import base_offsets_in, segment_file_name
from ottla.storage.segment.batch_scan import BatchScan, BatchTuple
from ottla.storage.segment.segment import RELATIVE_OFFSET_MAX

_MARKER: Final = struct.Struct(">hh")  # version, type
_ABORT: Final = 0


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
        # First offsets of transactions that no marker has ended yet, by producer id.
        self._open: dict[int, int] = {}

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
        if self._open:
            raise NotImportable(
                f"{found.partition} has a transaction that is still open, from offset {min(self._open.values())} on",
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
        following = whole_batch_behind(file, position, Bounds(found.log_end_offset, None))
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
                f"{file.path} at position {position}: leader epoch {head[2]} behind epoch {found.leader_epoch}",
                hint=_DAMAGED,
            )
        found.has_gaps = found.has_gaps or head[0] > found.log_end_offset
        found.leader_epoch = head[2]
        found.log_end_offset = last_offset + 1
        found.batches_count += 1
        if head[5] & CONTROL_BIT:
            self._read_marker(file, position, head)
            return
        found.records_count += head[12]
        if head[5] & TRANSACTIONAL_BIT:
            found.transactional_batches_count += 1
            self._open.setdefault(head[9], head[0])

    def _read_marker(self, file: File, position: int, head: BatchTuple) -> None:
        """The end of a transaction.  Committed: its records are like any others.  Aborted: only read_uncommitted
        may see them, and this broker does not distinguish the two yet.
        """
        try:
            records = decode_batch(memoryview(file.read_at(position, LOG_OVERHEAD_BYTES + head[1])))
        except WireError as error:
            raise NotImportable(f"{file.path} at position {position}: {error}", hint=_DAMAGED) from error
        first_offset = self._open.pop(head[9], None)
        for record in records:
            if record.key is None or len(record.key) < _MARKER.size:
                continue
            kind = _MARKER.unpack_from(record.key)[1]
            if kind == _ABORT and first_offset is not None and head[0] > self._found.log_start_offset:
                topic = self._found.partition.topic
                raise NotImportable(
                    f"{self._found.partition} holds records of an aborted transaction (offsets {first_offset} to "
                    f"{head[0] - 1}): transactions are not served yet, so consumers would be given them",
                    hint=f"leave the topic out: --exclude {topic}",
                )


_DAMAGED: Final = (
    "nothing was imported; let Apache Kafka start and stop on the directory once, or leave the topic out with --exclude"
)


def _lost(partition: TopicPartition) -> str:
    return (
        "nothing was imported, for acknowledged records would be missing: take the directory from another replica or a "
        f"backup, or leave the topic out: --exclude {partition.topic}"
    )

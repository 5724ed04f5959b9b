"""Inspecting segment files without opening the log: the core of `ottla log dump` and `ottla log verify`.

Nothing here writes, and no check stops at the first fault: findings are yielded one after the other.  It
can run beside a live broker; a batch that is just being written then shows as a cut tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.model.errors import WireError
from ottla.records.end_marker import EndMarker
from ottla.records.header import CONTROL_BIT, LOG_OVERHEAD_BYTES, BatchHeader
from ottla.records.record import decode_batch
from ottla.runtime.disk import Disk, File, read_file
from ottla.storage.checkpoints import (
    DamagedCheckpoint,
    has_clean_shutdown_mark,
    read_meta_properties,
    read_topic_id,
)
from ottla.storage.directory.directory_identity import FORMAT_NAME
from ottla.storage.directory.flushed_ends import LogKey, read_flushed_ends
from ottla.storage.errors import CorruptLog
from ottla.storage.log_files import (
    COMPACTED_FILE,
    FLUSHED_ENDS_FILE,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    UNFLUSHED_FILE,
    base_offsets_in,
    segment_file_name,
    topic_partition_of,
)
from ottla.storage.producers.aborted_transactions import AbortedTransaction, read_aborted_index
from ottla.storage.producers.log_transactions import LogTransactions
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.replay import marker_at
from ottla.storage.recovery.recovery import holds_records
from ottla.storage.segment.batch_scan import HEAD_CHUNK_BYTES, BatchScan, BatchTuple
from ottla.storage.segment.indexes import OffsetIndex, TimeIndex


class Severity(Enum):
    """DAMAGE: records cannot be read as they were written.  NOTE: something that a broker repairs when it starts."""

    DAMAGE = "damage"
    NOTE = "note"


class Finding(NamedTuple):
    """Something that is wrong; `position` is -1 where no byte can be named."""

    severity: Severity
    path: str
    position: int
    offset: int
    problem: str


class DumpedBatch(NamedTuple):
    """A batch's position and head, and the marker that it is."""

    path: str
    position: int
    header: BatchHeader
    marker: EndMarker | None = None


def dump_segment(disk: Disk, path: str) -> Iterator[DumpedBatch | Finding]:
    """The heads of a `.log` file's batches in order, and a finding where they end too early."""
    file = disk.open(path, read_only=True)
    try:
        scan = BatchScan(file, 0, file.size_bytes(), HEAD_CHUNK_BYTES)
        next_offset = -1
        for position, head in scan.heads():
            header = BatchHeader._make(head)
            next_offset = header.next_offset
            yield DumpedBatch(path, position, header, marker_at(file, position, head))
        if scan.problem is not None:
            yield Finding(Severity.DAMAGE, path, scan.position, next_offset, scan.problem)
    finally:
        file.close()


def flushed_end_of(disk: Disk, directory: str, ends: Mapping[LogKey, int]) -> int | None:
    """Up to where a partition's log is flushed by the records of its data directory; None where nothing counts as
    that: there is no record, or the log acknowledges before it flushes (flush policy `os`).
    """
    topic_partition = topic_partition_of(directory.rstrip("/").rpartition("/")[2])
    try:
        topic_id = read_topic_id(disk, directory)
    except DamagedCheckpoint:
        topic_id = None
    if topic_partition is None or topic_id is None or disk.exists(f"{directory}/{UNFLUSHED_FILE}"):
        return None
    return ends.get((topic_id, topic_partition.partition))


def verify_log(disk: Disk, directory: str, *, deep: bool, flushed_end: int | None = None) -> Iterator[Finding]:
    """Check every segment of a partition's directory.

    `flushed_end` was recorded before: what is wrong after it is no damage of acknowledged records, and the next start
    cuts it off; a log that ends before it has lost something.

    Always: heads, offsets without a gap inside and between segments (a compacted log may have some), epochs that never
    fall, indexes against the log.
    `deep`: also each batch's checksum, and its records decompressed and decoded; and whether each aborted transaction
    is in its index, without which consumers would get its records.
    """
    names = disk.list_directory(directory)
    end_offset, is_damaged = -1, False
    for finding, next_offset in _log_findings(disk, directory, names, deep=deep):
        end_offset = max(end_offset, next_offset)
        if finding is None:
            continue
        if finding.severity is Severity.DAMAGE and flushed_end is not None and finding.offset >= flushed_end:
            yield finding._replace(
                severity=Severity.NOTE,
                problem=f"{finding.problem}; it is after the flushed end: the next start cuts it off",
            )
        else:
            is_damaged = is_damaged or finding.severity is Severity.DAMAGE
            yield finding
    if flushed_end is not None and -1 < end_offset < flushed_end and not is_damaged:
        problem = f"the log ends here, and was flushed up to offset {flushed_end}"
        yield Finding(Severity.DAMAGE, directory, -1, end_offset, problem)


def _log_findings(
    disk: Disk, directory: str, names: Sequence[str], *, deep: bool
) -> Iterator[tuple[Finding | None, int]]:
    """Each finding, and at the end of each segment None, with the end of the log so far; -1 before its first one."""
    may_have_gaps = COMPACTED_FILE in names
    base_offsets = base_offsets_in(names)
    if not base_offsets:
        yield Finding(Severity.DAMAGE, directory, -1, -1, "there is no segment file"), -1
    next_offset = last_epoch = -1
    transactions = LogTransactions(ProducerStates())
    for base_offset in base_offsets:
        path = f"{directory}/{segment_file_name(base_offset)}"
        if next_offset > base_offset or (-1 < next_offset < base_offset and not may_have_gaps):
            problem = f"the segment before ends at {next_offset}, not at {base_offset}"
            yield Finding(Severity.DAMAGE, path, -1, next_offset, problem), next_offset
        # The active segment of a running broker has its indexes in memory only.
        is_active = base_offset == base_offsets[-1]
        check = _SegmentCheck(
            disk, path, base_offset, last_epoch, deep, may_have_gaps, transactions, needs_aborted=not is_active
        )
        for finding in check.findings():
            yield finding, -1
        next_offset, last_epoch = check.next_offset, check.last_epoch
        yield None, next_offset


def verify_flushed_ends(disk: Disk, data_dir: str, directories: Iterable[str]) -> Iterator[Finding]:
    """Check that every partition's directory that holds records has a record of its flushed end.

    Nothing is checked where `data_dir` is no data directory of Ottla.  Raises `OSError`, `DamagedCheckpoint`.
    """
    if FORMAT_NAME not in (read_meta_properties(disk, data_dir) or {}):
        return
    # In this order: beside a running broker a log has its record before its first batch.
    holding = [directory for directory in directories if holds_records(disk, directory)]
    ends = read_flushed_ends(disk, data_dir)
    was_clean = has_clean_shutdown_mark(disk, data_dir)
    for directory in holding:
        name = directory.rstrip("/").rpartition("/")[2]
        topic_partition = topic_partition_of(name)
        if topic_partition is None:
            continue
        try:
            topic_id = read_topic_id(disk, directory)
        except DamagedCheckpoint:
            continue
        if topic_id is None or (topic_id, topic_partition.partition) in ends:
            continue
        consequence = "the next start recreates it" if was_clean else "the broker refuses the partition"
        problem = f"no record of how far {name} was flushed: {consequence}"
        severity = Severity.NOTE if was_clean else Severity.DAMAGE
        yield Finding(severity, f"{data_dir}/{FLUSHED_ENDS_FILE}", -1, -1, problem)


class _SegmentCheck:
    """One segment file and its indexes, in one walk; afterwards `next_offset` and `last_epoch` are those of its end."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: int,
        last_epoch: int,
        deep: bool,
        may_have_gaps: bool,
        transactions: LogTransactions,
        *,
        needs_aborted: bool,
    ) -> None:
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._deep = deep
        self._may_have_gaps = may_have_gaps
        # Index entries that no batch has confirmed yet: position -> last offset, last offset -> timestamp.
        self._index_entries: dict[int, int] = {}
        self._time_entries: dict[int, int] = {}
        # By the offset of their marker.
        self._aborted: dict[int, AbortedTransaction] = {}
        # Of the log, in the order of its segments.
        self._transactions = transactions
        self._needs_aborted = needs_aborted
        self.next_offset = base_offset
        self.last_epoch = last_epoch

    def findings(self) -> Iterator[Finding]:
        yield from self._load_indexes()
        file = self._disk.open(self._path, read_only=True)
        try:
            scan = BatchScan(file, 0, file.size_bytes(), HEAD_CHUNK_BYTES)
            for position, head in scan.heads():
                header = BatchHeader._make(head)
                yield from self._check_head(position, header)
                if self._deep:
                    yield from self._check_records(file, position, header)
                if header.is_transactional and header.producer_id >= 0:
                    yield from self._check_transaction(file, position, head)
                yield from self._confirm_index_entries(position, header)
                self.next_offset = header.next_offset
                self.last_epoch = max(self.last_epoch, header.leader_epoch)
            if scan.problem is not None:
                yield self._damage(scan.position, scan.problem)
                yield from self._leave_out_index_entries(scan.position)
        finally:
            file.close()
        for position, offset in self._index_entries.items():
            yield self._index_note(INDEX_SUFFIX, position, offset, "no batch starts at the entry's position")
        for offset in self._time_entries:
            yield self._index_note(TIME_INDEX_SUFFIX, -1, offset, "no batch ends with the entry's offset")
        for offset in self._aborted:
            yield self._index_note(TRANSACTION_INDEX_SUFFIX, -1, offset, "no marker is at the entry's last offset")

    def _damage(self, position: int, problem: str) -> Finding:
        return Finding(Severity.DAMAGE, self._path, position, self.next_offset, problem)

    def _check_head(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        is_gap = header.base_offset > self.next_offset and not self._may_have_gaps
        if header.base_offset < self.next_offset or is_gap:
            yield self._damage(position, f"base offset {header.base_offset} instead of {self.next_offset}")
        if header.leader_epoch < self.last_epoch:
            yield self._damage(position, f"leader epoch {header.leader_epoch} after epoch {self.last_epoch}")
        # None: the empty batch that compaction or repair leaves in place of records.
        if not 0 <= header.records_count <= header.last_offset_delta + 1:
            yield self._damage(
                position, f"{header.records_count} records with a last offset delta of {header.last_offset_delta}"
            )

    def _check_records(self, file: File, position: int, header: BatchHeader) -> Iterator[Finding]:
        batch = file.read_at(position, LOG_OVERHEAD_BYTES + header.batch_length)
        try:
            records = decode_batch(memoryview(batch))
        except WireError as error:
            yield self._damage(position, str(error))
            return
        if len(records) != header.records_count:
            yield self._damage(position, f"{len(records)} records where the head says {header.records_count}")
        for record in records:
            if not header.base_offset <= record.offset <= header.last_offset:
                yield self._damage(position, f"a record with offset {record.offset} outside of its batch")

    def _check_transaction(self, file: File, position: int, head: BatchTuple) -> Iterator[Finding]:
        entry = self._aborted.pop(head[0], None) if head[5] & CONTROL_BIT else None
        if not self._deep:
            return
        aborted = self._transactions.replay(BatchHeader._make(head), marker_at(file, position, head), 0)
        if aborted is None or not self._needs_aborted:
            return
        # The log's start, or a clean, may have removed its first records.
        if entry is None or entry.producer_id != aborted.producer_id or entry.first_offset > aborted.first_offset:
            problem = (
                f"consumers would get the records of producer {aborted.producer_id} from offset {aborted.first_offset} "
                f"on, whose transaction was aborted at {aborted.last_offset}: it is not in the index"
            )
            path = self._stem() + TRANSACTION_INDEX_SUFFIX
            yield Finding(Severity.DAMAGE, path, -1, aborted.first_offset, problem)

    def _load_indexes(self) -> Iterator[Finding]:
        """The active segment of a running broker has no index files, so a missing one is not reported."""
        index_path, time_index_path = self._stem() + INDEX_SUFFIX, self._stem() + TIME_INDEX_SUFFIX
        if self._disk.exists(index_path):
            content = read_file(self._disk, index_path)
            index = OffsetIndex.from_bytes(content, self._disk.file_size_bytes(self._path))
            if index is None or not index.is_increasing():
                yield self._index_note(INDEX_SUFFIX, -1, self._base_offset, "not an offset index of this segment")
            else:
                offsets = (self._base_offset + relative_offset for relative_offset in index.relative_offsets)
                self._index_entries = dict(zip(index.positions, offsets, strict=True))
        if self._disk.exists(time_index_path):
            time_index = TimeIndex.from_bytes(read_file(self._disk, time_index_path))
            if time_index is None or not time_index.is_increasing():
                yield self._index_note(TIME_INDEX_SUFFIX, -1, self._base_offset, "not a time index of this segment")
            else:
                offsets = (self._base_offset + relative_offset for relative_offset in time_index.relative_offsets)
                self._time_entries = dict(zip(offsets, time_index.timestamps_ms, strict=True))
        try:
            self._aborted = {each.last_offset: each for each in read_aborted_index(self._disk, self._stem())}
        except CorruptLog:
            problem = "not an index of this segment's aborted transactions"
            yield self._index_note(TRANSACTION_INDEX_SUFFIX, -1, self._base_offset, problem)
            self._needs_aborted = False

    def _leave_out_index_entries(self, position: int) -> Iterator[Finding]:
        """Batches after damage are not read, so the entries that point there cannot be checked."""
        entries = {at: offset for at, offset in self._index_entries.items() if at < position}
        time_entries = {offset: at for offset, at in self._time_entries.items() if offset < self.next_offset}
        left_count = len(self._index_entries) - len(entries) + len(self._time_entries) - len(time_entries)
        self._index_entries, self._time_entries, self._aborted = entries, time_entries, {}
        if left_count:
            problem = f"the indexes are not checked after the damage ({left_count} entries)"
            yield Finding(Severity.NOTE, self._path, position, self.next_offset, problem)

    def _stem(self) -> str:
        return self._path.removesuffix(LOG_SUFFIX)

    def _index_note(self, suffix: str, position: int, offset: int, problem: str) -> Finding:
        return Finding(Severity.NOTE, self._stem() + suffix, position, offset, problem)

    def _confirm_index_entries(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        offset = self._index_entries.pop(position, None)
        if offset is not None and offset != header.last_offset:
            problem = f"the batch there ends with offset {header.last_offset}"
            yield self._index_note(INDEX_SUFFIX, position, offset, problem)
        timestamp_ms = self._time_entries.pop(header.last_offset, None)
        if timestamp_ms is not None and timestamp_ms != header.max_timestamp_ms:
            problem = f"timestamp {timestamp_ms}, the batch there has {header.max_timestamp_ms}"
            yield self._index_note(TIME_INDEX_SUFFIX, -1, header.last_offset, problem)


def foreign_segments(disk: Disk, directory: str) -> list[str]:
    """The names of segments whose first batch is outside of the offsets that their place gives them, or is none.

    A log that is written meanwhile may show its newest one.  Raises `OSError`.
    """
    bases = base_offsets_in(disk.list_directory(directory))
    ends: list[int | None] = [*bases[1:], None][: len(bases)]
    return [
        segment_file_name(base)
        for base, end in zip(bases, ends, strict=True)
        if not _may_be_own(disk, f"{directory}/{segment_file_name(base)}", base, end)
    ]


def _may_be_own(disk: Disk, path: str, base_offset: int, end_offset: int | None) -> bool:
    file = disk.open(path, read_only=True)
    try:
        size_bytes = file.size_bytes()
        if not size_bytes:
            return True
        scan = BatchScan(file, 0, size_bytes, HEAD_CHUNK_BYTES)
        first = next(scan.heads(), None)
    finally:
        file.close()
    if first is None:
        # A torn write at the very end of a log: recovery cuts it.
        return end_offset is None
    header = BatchHeader._make(first[1])
    # Compaction may have taken what came before it, so it may start later than its name.
    return base_offset <= header.base_offset and (end_offset is None or header.next_offset <= end_offset)

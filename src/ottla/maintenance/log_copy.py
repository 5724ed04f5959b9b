"""Copies one partition's log up to its last whole batch, beside the broker that writes it.

All that was acknowledged before the copy began is in it: the last batches may not be flushed by their broker yet, and
the copy is synced itself.  Every batch is read: what is not whole, or does not reach the recorded flushed end, is
damage, and from there on the log is copied as it is, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.maintenance.copied_files import CopiedFiles
from ottla.maintenance.manifest import BackupFile
from ottla.maintenance.pinned_log import PinnedLog, pinned
from ottla.model.limits import INT64_MAX
from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.log_files import COMPACTED_FILE, DISTRUSTED_FILE, segment_file_name
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX, snapshot_offsets_in
from ottla.storage.segment.batch_scan import BatchScan


class CopiedLog(NamedTuple):
    """`first_offset` is that of its first segment, `end` exclusive: of a damaged log what was flushed of it.

    `is_proven`: whether that may be recorded as flushed.
    """

    files: Sequence[BackupFile]
    first_offset: int
    end: int
    problem: str | None
    is_proven: bool = True


class _Whole(NamedTuple):
    """How far a segment's copy is whole: `problem` says why not further."""

    size_bytes: int
    end: int
    problem: str | None


class LogCopying:
    """Copies logs of one data directory; `links` closed segments instead, which needs one file system."""

    def __init__(self, disk: Disk, *, links: bool, pause: Callable[[], None]) -> None:
        self._disk = disk
        self._links = links
        self._pause = pause

    def copy(self, source: str, target: str, flushed_end: int | None) -> CopiedLog | None:
        """Copy the partition's directory `source` into the new directory `target`.

        `flushed_end` was recorded before, None where nothing proves it.  None when `source` is gone: its topic was
        deleted; then `target` may be left.  Raises `StorageError`, `OSError`.
        """
        with pinned(self._disk, source, self._pause) as log:
            if log is None:
                return None
            self._disk.make_directory(target)
            copied = _Copy(self._disk, source, target, log, flushed_end or 0, links=self._links)
            try:
                return copied.as_it_is() if flushed_end is None else copied.run()
            except FileNotFoundError:
                if self._disk.exists(source):
                    raise
                return None


class _Copy:
    def __init__(
        self, disk: Disk, source: str, target: str, log: PinnedLog, flushed_end: int, *, links: bool
    ) -> None:  # fmt: skip
        self._disk = disk
        self._source = source
        self._target = target
        self._log = log
        self._flushed_end = flushed_end
        self._links = links
        self._files = CopiedFiles(disk, source, target)
        self._may_have_gaps = disk.exists(f"{source}/{COMPACTED_FILE}")

    def run(self) -> CopiedLog:
        bases = self._log.segments
        end, problem = self._copy_whole(bases)
        self._copy_small_files(end)
        return CopiedLog(self._files.noted, bases[0] if bases else 0, end, self._files.unreadable or problem)

    def as_it_is(self) -> CopiedLog:
        """Of a log whose flushed end is unknown: a torn write at its end and lost records look the same."""
        bases = self._log.segments
        self._copy_as_they_are(bases)
        self._copy_small_files(INT64_MAX)
        first, last = (bases[0], bases[-1]) if bases else (0, 0)
        return CopiedLog(self._files.noted, first, last, "nothing says how far it was flushed", is_proven=False)

    # --- segments -------------------------------------------------------------------------------------------

    def _copy_whole(self, bases: Sequence[int]) -> tuple[int, str | None]:
        """Returns the end of the log, and what is wrong with it."""
        flushed_end = self._flushed_end
        if not bases:
            return flushed_end, "it has no segment" if flushed_end else None
        end = bases[0]
        for slot, base in enumerate(bases):
            if base != end and not (self._may_have_gaps and base > end):
                if min(base, end) >= flushed_end:
                    break
                self._copy_as_they_are(bases[slot:])
                return flushed_end, f"{self._path(bases[slot - 1])} ends at offset {end}, the next segment is {base}"
            is_closed = self._is_closed_in(bases, slot)
            size_bytes = self._take_closed(base) if is_closed else self._copy_bytes(base)
            whole = self._whole(base, size_bytes)
            end = whole.end
            is_last = slot + 1 == len(bases) or whole.problem is not None
            if is_last and (is_closed or end < flushed_end):
                self._files.note(segment_file_name(base))
                self._copy_as_they_are(bases[slot + 1 :])
                return flushed_end, (
                    f"{self._path(base)} is damaged at position {whole.size_bytes} (offset {end}): "
                    f"{whole.problem or 'the file ends here'}; it was flushed up to offset {flushed_end}"
                )
            if not is_closed:
                self._files.truncate(segment_file_name(base), whole.size_bytes)
            self._files.note(segment_file_name(base))
            if is_last:
                break
        return end, None

    def _is_closed_in(self, bases: Sequence[int], slot: int) -> bool:
        """Whether a segment is closed and flushed: then it never changes, and may be linked, but not be cut."""
        return slot + 1 < len(bases) and bases[slot + 1] <= self._flushed_end

    def _copy_as_they_are(self, bases: Sequence[int]) -> None:
        for slot, base in enumerate(bases):
            if self._is_closed_in(bases, slot):
                self._take_closed(base)
            else:
                self._copy_bytes(base)
            self._files.note(segment_file_name(base))

    def _copy_bytes(self, base: int) -> int:
        """Of a segment that may be written meanwhile; returns how many there were."""
        source = self._log.log(base)
        return self._files.copy_there(segment_file_name(base), source, source.size_bytes())

    def _path(self, base: int) -> str:
        return f"{self._source}/{segment_file_name(base)}"

    def _take_closed(self, base: int) -> int:
        """Link or copy a segment, and copy its indexes; returns its size."""
        name = segment_file_name(base)
        file = self._log.log(base)
        if not (self._links and self._files.link(name, file)):
            self._files.copy(name, file)
        for suffix, side in self._log.sides(base):
            side_name = segment_file_name(base, suffix)
            self._files.copy(side_name, side)
            self._files.note(side_name)
        return file.size_bytes()

    def _whole(self, base: int, size_bytes: int) -> _Whole:
        """Read the copy: what its broker wrote meanwhile is in it or is not, and a checksum tells."""
        file = self._disk.open(f"{self._target}/{segment_file_name(base)}", read_only=True)
        try:
            scan = BatchScan(file, 0, size_bytes)
            end, problem = base, None
            for head in scan.checked_heads():
                if head[0] < end or (head[0] > end and not self._may_have_gaps):
                    problem = f"a batch with base offset {head[0]} instead of {end}"
                    break
                end = head[0] + head[6] + 1
            # The walk moves on from a batch when the next one is asked for.
            return _Whole(scan.position, end, problem or scan.problem)
        finally:
            file.close()

    # --- files ----------------------------------------------------------------------------------------------

    def _copy_small_files(self, end: int) -> None:
        """After the segments: their marks may allow more than is there, never less."""
        for name in (checkpoints.PARTITION_METADATA_FILE, DISTRUSTED_FILE):
            content = self._files.content(name)
            if content is not None:
                self._files.write(name, content)
        content = self._files.content(COMPACTED_FILE)
        if content is not None:
            # A clean since then may have gone further than the copy does, which is flushed no further than its end.
            text = content.strip()
            is_higher = text.isdigit() and int(text) > end
            self._files.write(COMPACTED_FILE, b"%d\n" % end if is_higher else content)
        content = self._files.content(checkpoints.LEADER_EPOCH_FILE)
        if content is not None:
            self._write_epochs(content, end)
        for offset in snapshot_offsets_in(self._disk.list_directory(self._source)):
            name = f"{offset:020d}{SNAPSHOT_SUFFIX}"
            # One above the end would describe batches that are not in the copy.
            content = self._files.content(name) if offset <= end else None
            if content is not None:
                self._files.write(name, content)

    def _write_epochs(self, content: bytes, end: int) -> None:
        path = f"{self._source}/{checkpoints.LEADER_EPOCH_FILE}"
        try:
            epochs = checkpoints.parse_epochs(content, path)
        except checkpoints.DamagedCheckpoint:
            return  # the batches have them too
        kept = [entry for entry in epochs if entry.start_offset <= end]
        self._files.write(checkpoints.LEADER_EPOCH_FILE, checkpoints.format_epochs(kept))

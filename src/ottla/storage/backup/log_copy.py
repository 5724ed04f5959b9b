"""Copies one partition's log up to its last whole batch, beside the broker that writes it.

All that was acknowledged before the copy began is in it: the last batches may not be flushed by their broker yet, and
the copy is synced itself.  What does not reach the recorded flushed end is damage: it is copied as it is and named.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.storage import checkpoints
from ottla.storage.backup.manifest import BackupFile, chunks, file_crc
from ottla.storage.backup.pinned_log import PinnedLog, pinned
from ottla.storage.errors import StorageError
from ottla.storage.log_files import COMPACTED_FILE, DISTRUSTED_FILE, segment_file_name
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX, snapshot_offsets_in
from ottla.storage.segment.batch_scan import BatchScan

_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class CopiedLog(NamedTuple):
    """`first_offset` is that of its first segment, `end` exclusive."""

    files: Sequence[BackupFile]
    first_offset: int
    end: int
    problem: str | None


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

    def copy(self, source: str, target: str, flushed_end: int) -> CopiedLog | None:
        """Copy the partition's directory `source` into the new directory `target`.

        `flushed_end` was recorded before.  None when `source` is gone: its topic was deleted; then `target` may be
        left.  Raises `StorageError`, `OSError`.
        """
        with pinned(self._disk, source, self._pause) as log:
            if log is None:
                return None
            self._disk.make_directory(target)
            copied = _Copy(self._disk, source, target, log, flushed_end, links=self._links)
            try:
                return copied.run()
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
        self._files: list[BackupFile] = []
        self._may_have_gaps = disk.exists(f"{source}/{COMPACTED_FILE}")

    def run(self) -> CopiedLog:
        bases = self._log.segments
        # Closed and flushed: these never change.
        proven = [base for base, after in pairwise(bases) if after <= self._flushed_end]
        for base in proven:
            self._take_closed(base)
        end, problem = self._copy_rest(bases[len(proven) :])
        if not bases:
            problem = "it has no segment"
        self._copy_small_files(end)
        return CopiedLog(self._files, bases[0] if bases else 0, end, problem)

    # --- segments -------------------------------------------------------------------------------------------

    def _take_closed(self, base: int) -> None:
        name = segment_file_name(base)
        file = self._log.log(base)
        if self._links and self._is_linked(name, file):
            size_bytes = file.size_bytes()
            self._note(name, size_bytes, file_crc(file, size_bytes))
        else:
            self._copy(name, file)
        for suffix, side in self._log.sides(base):
            self._copy(segment_file_name(base, suffix), side)

    def _is_linked(self, name: str, file: File) -> bool:
        """Whether the file of this name is the pinned one still, and now has a second name."""
        try:
            self._disk.link(f"{self._source}/{name}", f"{self._target}/{name}")
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise StorageError(
                f"{self._source}/{name} cannot be linked into {self._target}: {error.strerror}",
                hint="links need both directories on one file system: leave --link out",
            ) from error
        linked = self._disk.open(f"{self._target}/{name}", read_only=True)
        try:
            is_same = linked.size_bytes() == file.size_bytes()
        finally:
            linked.close()
        if not is_same:
            # Compaction put another one in its place since it was opened.
            self._disk.remove(f"{self._target}/{name}")
        return is_same

    def _copy_rest(self, bases: Sequence[int]) -> tuple[int, str | None]:
        """Copy the segments that may end in a torn write; returns the end of the log, and what is wrong with it."""
        end = self._flushed_end if not bases else bases[0]
        for slot, base in enumerate(bases):
            name = segment_file_name(base)
            following = bases[slot + 1] if slot + 1 < len(bases) else None
            if base != end and not (self._may_have_gaps and base > end):
                break
            size_bytes = self._copy_bytes(name, self._log.log(base))
            whole = self._whole(name, base, size_bytes)
            end = whole.end
            is_last = following is None or whole.problem is not None
            if is_last and end < self._flushed_end:
                self._note_copied(name)
                self._copy_as_they_are(bases[slot + 1 :])
                return self._flushed_end, (
                    f"{self._source}/{name} is damaged at position {whole.size_bytes} (offset {end}): "
                    f"{whole.problem or 'the file ends here'}; it was flushed up to offset {self._flushed_end}"
                )
            self._truncate(name, whole.size_bytes)
            self._note_copied(name)
            if is_last:
                break
        return end, None

    def _copy_as_they_are(self, bases: Sequence[int]) -> None:
        for base in bases:
            self._copy(segment_file_name(base), self._log.log(base))

    def _whole(self, name: str, base: int, size_bytes: int) -> _Whole:
        """Read the copy: what its broker wrote meanwhile is in it or is not, and a checksum tells."""
        file = self._disk.open(f"{self._target}/{name}", read_only=True)
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
            content = self._content(name)
            if content is not None:
                self._write(name, content)
        content = self._content(COMPACTED_FILE)
        if content is not None:
            # A clean since then may have gone further than the copy does, which is flushed no further than its end.
            text = content.strip()
            is_higher = text.isdigit() and int(text) > end
            self._write(COMPACTED_FILE, b"%d\n" % end if is_higher else content)
        content = self._content(checkpoints.LEADER_EPOCH_FILE)
        if content is not None:
            self._write_epochs(content, end)
        for offset in snapshot_offsets_in(self._disk.list_directory(self._source)):
            name = f"{offset:020d}{SNAPSHOT_SUFFIX}"
            # One above the end would describe batches that are not in the copy.
            content = self._content(name) if offset <= end else None
            if content is not None:
                self._write(name, content)

    def _content(self, name: str) -> bytes | None:
        try:
            return read_file(self._disk, f"{self._source}/{name}")
        except FileNotFoundError:
            return None

    def _write_epochs(self, content: bytes, end: int) -> None:
        path = f"{self._source}/{checkpoints.LEADER_EPOCH_FILE}"
        try:
            epochs = checkpoints.parse_epochs(content, path)
        except checkpoints.DamagedCheckpoint:
            return  # the batches have them too
        kept = [entry for entry in epochs if entry.start_offset <= end]
        self._write(checkpoints.LEADER_EPOCH_FILE, checkpoints.format_epochs(kept))

    def _copy(self, name: str, source: File) -> None:
        size_bytes, crc = source.size_bytes(), 0
        target = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            done = 0
            for chunk in chunks(source, size_bytes):
                write_fully(target, done, chunk)
                crc = crc32c(chunk, crc)
                done += len(chunk)
        finally:
            target.close()
        if done != size_bytes:
            raise OSError(errno.EIO, "the file ends too early", f"{self._source}/{name}")
        self._note(name, size_bytes, crc)

    def _copy_bytes(self, name: str, source: File) -> int:
        """Of a file that may be written meanwhile, or lose a write that failed; returns how many there were."""
        target = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            done = 0
            for chunk in chunks(source, source.size_bytes()):
                write_fully(target, done, chunk)
                done += len(chunk)
            return done
        finally:
            target.close()

    def _truncate(self, name: str, size_bytes: int) -> None:
        file = self._disk.open(f"{self._target}/{name}")
        try:
            if file.size_bytes() != size_bytes:
                file.truncate(size_bytes)
        finally:
            file.close()

    def _note_copied(self, name: str) -> None:
        file = self._disk.open(f"{self._target}/{name}", read_only=True)
        try:
            size_bytes = file.size_bytes()
            self._note(name, size_bytes, file_crc(file, size_bytes))
        finally:
            file.close()

    def _write(self, name: str, content: bytes) -> None:
        file = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            write_fully(file, 0, content)
        finally:
            file.close()
        self._note(name, len(content), crc32c(content))

    def _note(self, name: str, size_bytes: int, crc: int) -> None:
        directory = self._target.rpartition("/")[2]
        self._files.append(BackupFile(f"{directory}/{name}", size_bytes, crc))

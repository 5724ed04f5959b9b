"""Copies one partition's log up to its last whole batch, beside the broker that writes it.

All that was acknowledged before the copy started is in it: the last batches may not be flushed by their broker yet, and
the copy is synced itself.  Every batch is read: what is not whole, or does not reach the recorded flushed end, is
damage, and from there on the log is copied as it is, and named.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.maintenance.manifest import CHUNK_BYTES, BackupFile, file_crc
from ottla.model.counted import counted
from ottla.model.limits import INT64_MAX
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, File, read_file, write_fully
from ottla.storage import checkpoints
from ottla.storage.compaction.swap import is_swap_begun
from ottla.storage.errors import StorageError, lacks_descriptors
from ottla.storage.log_files import (
    COMPACTED_FILE,
    DISTRUSTED_FILE,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    base_offsets_in,
    segment_file_name,
)
from ottla.storage.producers.producer_snapshot import SNAPSHOT_SUFFIX, snapshot_offsets_in
from ottla.storage.segment.batch_scan import BatchScan

# The files of a partition's directory at one moment, kept by open descriptors while its broker continues to write.
#
# Closed segments are never written to, but retention and compaction take them away at any time; a file that is open
# stays readable.  The names before and after the opening, and the sizes, show whether a swap of compaction came in
# between.

# Some changes a second may come in between; a swap that does not end is that of a broker that was killed.
_ATTEMPTS_MAX: Final = 200


class PinnedLog:
    """`segments` has the base offsets, in order; the last one may grow."""

    def __init__(self, files: dict[tuple[int, str], File]) -> None:
        self._files = files
        self.segments = sorted(base for base, suffix in files if suffix == LOG_SUFFIX)

    def log(self, base_offset: int) -> File:
        return self._files[base_offset, LOG_SUFFIX]

    def sides(self, base_offset: int) -> Iterator[tuple[str, File]]:
        """The indexes of a segment, as far as there are any: (suffix, file)."""
        for suffix in SEGMENT_SUFFIXES:
            if suffix != LOG_SUFFIX and (base_offset, suffix) in self._files:
                yield suffix, self._files[base_offset, suffix]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


@contextmanager
def pinned(disk: Disk, directory: str, pause: Callable[[], None]) -> Iterator[PinnedLog | None]:
    """None when the directory is gone: its topic was deleted.  `pause` waits a moment before it is tried again.

    Raises `StorageError`, `OSError`.
    """
    log = _pin(disk, directory, pause)
    try:
        yield log
    finally:
        if log is not None:
            log.close()


def _pin(disk: Disk, directory: str, pause: Callable[[], None]) -> PinnedLog | None:
    for _ in range(_ATTEMPTS_MAX):
        try:
            log = _attempt(disk, directory)
        except FileNotFoundError:
            if not disk.exists(directory):
                return None
            log = None
        except OSError as error:
            if lacks_descriptors(error):
                raise StorageError(
                    f"{directory} has more segments than this process may open files",
                    hint="raise the limit of open files (`ulimit -n`), and try again",
                ) from error
            raise
        if log is not None:
            return log
        pause()
    raise StorageError(
        f"{directory} changes so fast that it could not be copied, or a crash interrupted its compaction",
        hint="start the broker, which completes a compaction, and try again",
    )


def _attempt(disk: Disk, directory: str) -> PinnedLog | None:
    """None when the directory changed meanwhile."""
    if is_swap_begun(disk, directory):
        return None
    bases = base_offsets_in(disk.list_directory(directory))
    files: dict[tuple[int, str], File] = {}
    try:
        for base in bases:
            for suffix in SEGMENT_SUFFIXES:
                path = f"{directory}/{segment_file_name(base, suffix)}"
                if suffix == LOG_SUFFIX or disk.exists(path):
                    files[base, suffix] = disk.open(path, read_only=True)
        is_same = base_offsets_in(disk.list_directory(directory)) == bases and all(
            disk.file_size_bytes(f"{directory}/{segment_file_name(base)}") == files[base, LOG_SUFFIX].size_bytes()
            for base in bases[:-1]
        )
        if is_same and not is_swap_begun(disk, directory):
            taken, files = files, {}
            return PinnedLog(taken)
        return None
    finally:
        for file in files.values():
            file.close()


# A disk's sector, and a page of the kernel's cache.
_BLOCK_BYTES: Final = 4096


class ReadableBytes:
    """One reading of a file; `lost_bytes` counts the zeros."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.lost_bytes = 0

    def chunks(self, size_bytes: int) -> Iterator[bytes]:
        """The first bytes; fewer where the file ends earlier.  Raises `OSError` for errors that are not the disk's."""
        done = 0
        while done < size_bytes:
            length_bytes = min(CHUNK_BYTES, size_bytes - done)
            try:
                chunk = self._file.read_at(done, length_bytes)
            except OSError as error:
                _require_fault_of_disk(error)
                chunk = b"".join(self._blocks(done, length_bytes))
            if not chunk:
                return
            yield chunk
            done += len(chunk)

    def _blocks(self, position: int, length_bytes: int) -> Iterator[bytes]:
        for at in range(position, position + length_bytes, _BLOCK_BYTES):
            block_bytes = min(_BLOCK_BYTES, position + length_bytes - at)
            try:
                yield self._file.read_at(at, block_bytes)
            except OSError as error:
                _require_fault_of_disk(error)
                self.lost_bytes += block_bytes
                yield bytes(block_bytes)


def _require_fault_of_disk(error: OSError) -> None:
    if error.errno != errno.EIO:
        raise error


_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class CopiedFiles:
    """From the directory `source` into the directory `target`; `noted` is what the manifest says of them.

    `unreadable` names the first file of which the source's disk could not read all.
    """

    def __init__(self, disk: Disk, source: str, target: str) -> None:
        self.noted: Final[list[BackupFile]] = []
        self.unreadable: str | None = None
        self._disk = disk
        self._source = source
        self._target = target

    def link(self, name: str, file: File) -> bool:
        """Give the file of this name a second one; False when it is not the pinned one any more."""
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

    def content(self, name: str) -> bytes | None:
        """That of a small file of the source; None when it is not there."""
        try:
            return read_file(self._disk, f"{self._source}/{name}")
        except FileNotFoundError:
            return None

    def copy(self, name: str, source: File) -> None:
        """Copy all of a file that is not written to any more."""
        size_bytes = source.size_bytes()
        if self.copy_there(name, source, size_bytes) != size_bytes:
            raise OSError(errno.EIO, "the file ends too early", f"{self._source}/{name}")

    def copy_there(self, name: str, source: File, size_bytes: int) -> int:
        """Copy so many bytes of a file that may lose some meanwhile; returns how many there were."""
        target = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            done, readable = 0, ReadableBytes(source)
            for chunk in readable.chunks(size_bytes):
                write_fully(target, done, chunk)
                done += len(chunk)
        finally:
            target.close()
        if readable.lost_bytes:
            lost = counted(readable.lost_bytes, "byte")
            self.unreadable = self.unreadable or f"{self._source}/{name}: {lost} cannot be read: zeros replace them"
        return done

    def truncate(self, name: str, size_bytes: int) -> None:
        file = self._disk.open(f"{self._target}/{name}")
        try:
            if file.size_bytes() != size_bytes:
                file.truncate(size_bytes)
        finally:
            file.close()

    def note(self, name: str) -> None:
        """Existing files count: a link may be to a segment that compaction put in place since."""
        file = self._disk.open(f"{self._target}/{name}", read_only=True)
        try:
            size_bytes = file.size_bytes()
            self._add(name, size_bytes, file_crc(file, size_bytes))
        finally:
            file.close()

    def write(self, name: str, content: bytes) -> None:
        file = self._disk.open(f"{self._target}/{name}", create=True)
        try:
            write_fully(file, 0, content)
        finally:
            file.close()
        self._add(name, len(content), crc32c(content))

    def _add(self, name: str, size_bytes: int, crc: int) -> None:
        directory = self._target.rpartition("/")[2]
        self.noted.append(BackupFile(f"{directory}/{name}", size_bytes, crc))


class CopiedLog(NamedTuple):
    """`first_offset` is that of its first segment, `end` exclusive: of a damaged log its flushed end.

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
    def __init__(self, disk: Disk, source: str, target: str, log: PinnedLog, flushed_end: int, *, links: bool) -> None:
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

    def _copy_whole(self, bases: Sequence[int]) -> tuple[int, str | None]:
        """Returns the end of the log, and its problem."""
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
        """Read the copy: what its broker wrote meanwhile may be in it, and its checksum shows whether it is whole."""
        file = self._disk.open(f"{self._target}/{segment_file_name(base)}", read_only=True)
        try:
            scan = BatchScan(file, 0, size_bytes)
            end, problem = base, None
            for head in scan.checked_heads():
                if head[0] < end or (head[0] > end and not self._may_have_gaps):
                    problem = f"a batch with base offset {head[0]} instead of {end}"
                    break
                end = head[0] + head[6] + 1
            # The walk passes a batch when the next one is requested.
            return _Whole(scan.position, end, problem or scan.problem)
        finally:
            file.close()

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

"""The files of a partition's directory at one moment, kept although its broker goes on: by open descriptors.

Closed segments are never written to, but retention and compaction take them away at any time; a file that is open stays
readable.  The names before and after the opening, and the sizes, show whether a swap of compaction came in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ottla.runtime.disk import Disk, File
from ottla.storage.compaction.swap_file import is_swap_begun
from ottla.storage.errors import StorageError, lacks_descriptors
from ottla.storage.log_files import LOG_SUFFIX, SEGMENT_SUFFIXES, base_offsets_in, segment_file_name

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

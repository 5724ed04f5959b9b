"""What the next flush of a log must sync besides its active segment: rolled files, and names in its directory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.runtime.disk import File


class TakenFiles(NamedTuple):
    """The files that one flush syncs."""

    files: Sequence[File]
    files_to_close: Sequence[File]
    has_new_names: bool


NOTHING_TAKEN = TakenFiles((), (), has_new_names=False)


class UnsyncedFiles:
    """Filled by rolls, emptied by flushes."""

    __slots__ = ("_files", "_files_to_close", "_has_new_names")

    def __init__(self) -> None:
        self._files: list[File] = []
        self._files_to_close: list[File] = []
        self._has_new_names = False

    def add_rolled(self, log_file: File, index_files: Sequence[File]) -> None:
        """A segment was closed and the next one's name made; its index files are closed after the sync."""
        self._files += [log_file, *index_files]
        self._files_to_close += index_files
        self._has_new_names = True

    def add_checkpoint(self, file: File) -> None:
        """A small file was replaced; it is closed after the sync."""
        self._files.append(file)
        self._files_to_close.append(file)
        self._has_new_names = True

    def add_names(self) -> None:
        self._has_new_names = True

    def forget(self, files: Iterable[File | None]) -> None:
        """Files that are about to be removed need no sync."""
        gone = set(files)
        self._files = [file for file in self._files if file not in gone]

    def take(self) -> TakenFiles:
        if not self._has_new_names:
            return NOTHING_TAKEN
        taken = TakenFiles(self._files, self._files_to_close, self._has_new_names)
        self._files, self._files_to_close, self._has_new_names = [], [], False
        return taken

    def close(self) -> None:
        for file in self._files_to_close:
            file.close()
        self._files, self._files_to_close = [], []

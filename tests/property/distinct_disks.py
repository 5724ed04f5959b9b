"""Which disks after power losses are worth a check: opening the log of each is most of a test's time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ottla.testing.memory_disk import MemoryDisk

Tree = frozenset[tuple[str, bytes | None]]


class DistinctDisks:
    """Equal disks pass or fail alike while the model is the same, so each is checked once."""

    def __init__(self) -> None:
        self._model: Hashable = None
        self._seen: set[Tree] = set()

    def is_new(self, disk: MemoryDisk, *model: Hashable) -> bool:
        """`model`: what identifies the state that the disk is compared with.  `disk` has no unsynced changes."""
        if model != self._model:
            self._model = model
            self._seen.clear()
        tree = frozenset(_entries(disk, "/"))
        if tree in self._seen:
            return False
        self._seen.add(tree)
        return True


def _entries(disk: MemoryDisk, directory: str) -> Iterator[tuple[str, bytes | None]]:
    """Each path with a file's content, None for a directory."""
    for name in disk.list_directory(directory):
        path = f"{directory}{name}"
        if disk.is_directory(path):
            yield path, None
            yield from _entries(disk, f"{path}/")
        else:
            file = disk.open(path, read_only=True)
            yield path, file.read_at(0, file.size_bytes())
            file.close()

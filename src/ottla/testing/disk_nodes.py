"""The nodes of a `MemoryDisk`: files and directories, each as programs see it and as it is durable."""

from __future__ import annotations

from typing import NamedTuple


class Write(NamedTuple):
    """Bytes written at a position, since the file's last sync."""

    position: int
    data: bytes


class Resize(NamedTuple):
    """A file truncated or extended with zeros, since its last sync."""

    length_bytes: int


Change = Write | Resize


def apply_change(content: bytearray, change: Change) -> None:
    """Apply the change to `content`."""
    if isinstance(change, Write):
        end = change.position + len(change.data)
        if len(content) < change.position:
            content.extend(bytes(change.position - len(content)))
        content[change.position : end] = change.data
    elif change.length_bytes < len(content):
        del content[change.length_bytes :]
    else:
        content.extend(bytes(change.length_bytes - len(content)))


class WriteBackErrors:
    """Lost write-backs of a file or a file system, as Linux counts them (errseq_t).

    Each descriptor that was opened before an error gets it once; one that is opened afterwards only if no other
    descriptor got it.
    """

    __slots__ = ("_count", "_error", "_was_reported")

    def __init__(self) -> None:
        self._count = 0
        self._error = 0
        self._was_reported = True

    def add(self, error: int) -> None:
        self._count += 1
        self._error = error
        self._was_reported = False

    def seen_by_new_descriptor(self) -> int:
        """The count of errors that a descriptor opened now does not get."""
        return self._count if self._was_reported else self._count - 1

    def error_since(self, seen: int) -> tuple[int, int]:
        """(the error number that a descriptor gets, 0 when there is none; the count that it has seen then)."""
        if seen == self._count:
            return 0, seen
        self._was_reported = True
        return self._error, self._count


class FileNode:
    """A file without its names.

    `content` is what reads return (the page cache); `durable` is what the device certainly has; `changes` are the
    difference, oldest first: a power loss keeps any part of them.
    """

    __slots__ = ("changes", "content", "durable", "errors")

    def __init__(self, content: bytes = b"") -> None:
        self.errors = WriteBackErrors()
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.changes: list[Change] = []

    def change(self, change: Change) -> None:
        apply_change(self.content, change)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            apply_change(self.durable, change)
        self.changes.clear()

    def forget_changes(self) -> None:
        """As the kernel does when a sync fails: the pages count as clean, and no later sync writes them."""
        self.changes.clear()


class DirectoryNode:
    """A directory: its entries as programs see them, and those that are durable."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = FileNode | DirectoryNode


class EntryChange(NamedTuple):
    """In `directory`, `name` now means `node`, or nothing (None)."""

    directory: DirectoryNode
    name: str
    node: Node | None

    def apply_to(self, entries: dict[str, Node]) -> None:
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


# One create, remove or rename: it survives a power loss as a whole or not at all.
DirectoryChange = tuple[EntryChange, ...]


def sync_directory_changes(changes: list[DirectoryChange], directory: DirectoryNode) -> list[DirectoryChange]:
    """Make the entries of one directory durable; returns the changes that remain unsynced.

    A rename out of the directory is durable in the other directory too, and so are the changes there before it.
    """
    reached: set[int] = {id(directory)}
    remaining: list[DirectoryChange] = []
    durable: list[DirectoryChange] = []
    for change in reversed(changes):
        if any(id(entry.directory) in reached for entry in change):
            reached.update(id(entry.directory) for entry in change)
            durable.append(change)
        else:
            remaining.append(change)
    for change in reversed(durable):
        for entry in change:
            entry.apply_to(entry.directory.durable)
    remaining.reverse()
    return remaining

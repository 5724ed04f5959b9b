"""The nodes of a `MemoryDisk`, each as programs see it and as it is durable; and the possible
contents of a device after a power loss, given the synced and unsynced changes.

The rules are those of POSIX, weaker than any one file system's: a synced file is whole; of everything written since,
each write may be present, missing, partial, and later ones present without earlier ones; a file may be longer than
its data (zeros).  A name is durable only after a sync of its directory; one rename is never half done.
One promise is the device's: a sector that it held already is overwritten whole or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple


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


SECTOR_BYTES: Final = 512


class Survival(Enum):
    """The unsynced changes that a power loss keeps."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    PREFIX = "prefix"  # the first of them in order, the next one torn
    SUBSET = "subset"  # each one kept, lost or torn, independent of the others
    SECTORS = "sectors"  # each sector, and the size, as of some moment since the sync


def surviving_content(node: FileNode, rng: random.Random, survival: Survival | None) -> bytes:
    """A legal content of the file after a power loss; `survival` is drawn from `rng` when None."""
    if not node.changes:
        return bytes(node.durable)
    chosen = rng.choice(list(Survival)) if survival is None else survival
    return bytes(_SURVIVORS[chosen](node.durable, node.changes, rng))


def _nothing(durable: bytearray, changes: list[Change], rng: random.Random) -> bytearray:
    return durable


def _everything(durable: bytearray, changes: list[Change], rng: random.Random) -> bytearray:
    return _with_changes(durable, changes)


def _prefix(durable: bytearray, changes: list[Change], rng: random.Random) -> bytearray:
    kept_count = rng.randrange(len(changes) + 1)
    kept = changes[:kept_count]
    if kept_count < len(changes) and rng.random() < 0.5:
        kept = [*kept, _torn(changes[kept_count], len(durable), rng)]
    return _with_changes(durable, kept)


def _subset(durable: bytearray, changes: list[Change], rng: random.Random) -> bytearray:
    kept: list[Change] = []
    for change in changes:
        fate = rng.random()
        if fate < 0.4:
            kept.append(change)
        elif fate < 0.6:
            kept.append(_torn(change, len(durable), rng))
    return _with_changes(durable, kept)


def _with_changes(durable: bytearray, changes: list[Change]) -> bytearray:
    content = bytearray(durable)
    for change in changes:
        apply_change(content, change)
    return content


def _torn(change: Change, durable_bytes: int, rng: random.Random) -> Change:
    """A part of a write: cut at a sector or at any byte, its beginning or its end, or only its size.

    Where the file had bytes already it is cut at a sector, and what is not overwritten stays.
    """
    if isinstance(change, Resize):
        return change
    data = change.data
    at = rng.randrange(len(data) + 1)
    is_overwriting = change.position < durable_bytes
    if is_overwriting or rng.random() < 0.5:
        at = max(0, min(len(data), (change.position + at) // SECTOR_BYTES * SECTOR_BYTES - change.position))
    kind = rng.randrange(3)
    if is_overwriting:
        return Write(change.position + at, data[at:]) if kind == 1 else Write(change.position, data[:at])
    if kind == 0:
        return Write(change.position, data[:at])
    if kind == 1:
        return Write(change.position, bytes(at) + data[at:])
    return Write(change.position, data[:at] + bytes(len(data) - at))


def _sectors(durable: bytearray, changes: list[Change], rng: random.Random) -> bytearray:
    content = bytearray(durable)
    sizes = [len(content)]
    versions: dict[int, list[bytes]] = {}
    for change in changes:
        touched = list(_touched_sectors(change, len(content)))
        for sector in touched:
            versions.setdefault(sector, [_sector_of(content, sector)])
        apply_change(content, change)
        sizes.append(len(content))
        for sector in touched:
            versions[sector].append(_sector_of(content, sector))
    size = rng.choice(sizes)
    result = bytearray(durable[:size].ljust(size, b"\0"))
    for sector, choices in versions.items():
        at = sector * SECTOR_BYTES
        room = min(SECTOR_BYTES, size - at)
        if room > 0:
            result[at : at + room] = rng.choice(choices)[:room].ljust(room, b"\0")
    return result


def _touched_sectors(change: Change, size_bytes: int) -> range:
    if isinstance(change, Write):
        start, end = min(change.position, size_bytes), change.position + len(change.data)
    else:
        start, end = sorted((change.length_bytes, size_bytes))
    return range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))


def _sector_of(content: bytearray, sector: int) -> bytes:
    return bytes(content[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])


_SURVIVORS: Final[dict[Survival, Callable[[bytearray, list[Change], random.Random], bytearray]]] = {
    Survival.NOTHING: _nothing,
    Survival.EVERYTHING: _everything,
    Survival.PREFIX: _prefix,
    Survival.SUBSET: _subset,
    Survival.SECTORS: _sectors,
}


def surviving_tree(
    root: DirectoryNode, changes: list[DirectoryChange], rng: random.Random, survival: Survival | None
) -> DirectoryNode:
    """The directories and files after a power loss, as new nodes without unsynced changes."""
    entries_of: dict[int, dict[str, Node]] = {}
    for change in _surviving_changes(changes, rng, survival):
        for entry in change:
            entries = entries_of.setdefault(id(entry.directory), dict(entry.directory.durable))
            entry.apply_to(entries)
    copies: dict[int, Node] = {}

    def copy_of(node: Node) -> Node:
        if id(node) in copies:
            return copies[id(node)]
        if isinstance(node, FileNode):
            copies[id(node)] = copied_file = FileNode(surviving_content(node, rng, survival))
            return copied_file
        copies[id(node)] = copied = DirectoryNode()
        entries = entries_of.get(id(node), node.durable)
        copied.entries = {name: copy_of(child) for name, child in sorted(entries.items())}
        copied.durable = dict(copied.entries)
        return copied

    copied_root = copy_of(root)
    assert isinstance(copied_root, DirectoryNode)
    return copied_root


def _surviving_changes(
    changes: list[DirectoryChange], rng: random.Random, survival: Survival | None
) -> Iterator[DirectoryChange]:
    chosen = rng.choice(list(Survival)) if survival is None else survival
    if chosen is Survival.EVERYTHING:
        yield from changes
    elif chosen is Survival.PREFIX:
        yield from changes[: rng.randrange(len(changes) + 1)]
    elif chosen is not Survival.NOTHING:
        # No tearing here: an entry is present or not.
        yield from (change for change in changes if rng.random() < 0.5)

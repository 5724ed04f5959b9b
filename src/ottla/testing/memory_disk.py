"""An in-memory disk that tracks synced bytes: for tests of crashes and failing disks.

    disk = MemoryDisk()
    ...                                    # use it like the real one
    after = disk.crash(random.Random(7))   # a power loss: a state that POSIX allows, chosen by the seed
    after = disk.kill()                    # only the process died: the page cache is whole
    disk.faults.fail("sync", error=errno.EIO, nth=3)
    disk.room_bytes = 1_000_000            # a full disk: short writes, then ENOSPC
    disk.descriptors_max = 20              # a process that may open few files: EMFILE
    disk.lose_write_back()                 # dirty pages are lost, an error that each descriptor gets once

`crash` and `kill` return a new disk and leave this one unchanged, so a test can check every moment of one run:
`on_operation` is called before each operation that changes or syncs something.
"""

from __future__ import annotations

import copy
import errno
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from typing_extensions import Buffer

from ottla.runtime.disk import SyncReport
from ottla.testing.disk_crash import (
    DirectoryChange,
    DirectoryNode,
    EntryChange,
    FileNode,
    Node,
    Resize,
    Survival,
    Write,
    WriteBackErrors,
    surviving_tree,
    sync_directory_changes,
)
from ottla.testing.disk_faults import DiskFaults, Operation, OperationKind

__all__ = ["SYNC_KINDS", "MemoryDisk", "MemoryFile", "Operation", "Survival"]

SYNC_KINDS: Final[frozenset[OperationKind]] = frozenset({"sync", "sync_directory", "sync_file_system"})

# The `free_bytes` of a disk without a limit.
_ENDLESS_BYTES: Final = 2**50
_SEND_BYTES_MAX: Final = 256 * 1024


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class MemoryFile:
    """An open file of a `MemoryDisk`; it outlives its name, as on POSIX."""

    __slots__ = ("_disk", "_is_open", "_is_read_only", "_node", "_path", "_seen_errors")

    def __init__(self, disk: MemoryDisk, node: FileNode, path: str, is_read_only: bool) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._is_read_only = is_read_only
        self._is_open = True
        self._seen_errors = node.errors.seen_by_new_descriptor()
        disk.open_files_count += 1

    @property
    def path(self) -> str:
        return self._path

    def size_bytes(self) -> int:
        return len(self._opened().content)

    def write_at(self, position: int, data: Buffer) -> int:
        taken = bytes(data)
        with self._disk.lock:
            node = self._writable()
            taken_bytes_max = self._disk.begin("write", self._path, position, len(taken))
            if taken_bytes_max is not None:
                taken = taken[:taken_bytes_max]
            taken = taken[: self._disk.writable_bytes(node, self._path, position, len(taken))]
            if taken:
                node.change(Write(position, taken))
            return len(taken)

    def read_at(self, position: int, length_bytes: int) -> bytes:
        with self._disk.lock:
            node = self._opened()
            self._disk.begin("read", self._path, position, length_bytes)
            return bytes(node.content[position : position + length_bytes])

    def truncate(self, length_bytes: int) -> None:
        with self._disk.lock:
            node = self._writable()
            self._disk.begin("truncate", self._path, 0, length_bytes)
            node.change(Resize(length_bytes))

    def allocate(self, length_bytes: int) -> None:
        with self._disk.lock:
            node = self._writable()
            self._disk.begin("allocate", self._path, 0, length_bytes)
            missing_bytes = length_bytes - len(node.content)
            if missing_bytes > self._disk.free_bytes(self._path):
                raise _error(errno.ENOSPC, self._path)
            if missing_bytes > 0:
                node.change(Resize(length_bytes))

    def sync_data(self) -> None:
        with self._disk.lock:
            node = self._opened()
            error, self._seen_errors = node.errors.error_since(self._seen_errors)
            self._disk.sync_nodes("sync", self._path, [node], error)

    def send_to(self, peer: socket.socket, position: int, length_bytes: int) -> int:
        data = self.read_at(position, min(length_bytes, _SEND_BYTES_MAX))
        return peer.send(data) if data else 0

    def close(self) -> None:
        if self._is_open:
            self._disk.open_files_count -= 1
        self._is_open = False

    __del__ = close

    def _opened(self) -> FileNode:
        if not self._is_open:
            raise _error(errno.EBADF, self._path)
        return self._node

    def _writable(self) -> FileNode:
        if self._is_read_only:
            raise _error(errno.EBADF, self._path)
        return self._opened()


class MemoryDisk:
    """A whole file system.  Paths are absolute or relative to its root; `/`, `.` and the empty path are the root.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._sync_report: SyncReport | None = None
        self.faults = DiskFaults()
        # The operations that changed or synced something, in order; reads are not kept.
        self.operations: list[Operation] = []
        self.on_operation: Callable[[Operation], None] | None = None
        # The most bytes of all files together; None: no limit.
        self.room_bytes: int | None = None
        # The most files and directories that may be open at a time, short-lived ones included; None: no limit.
        self.descriptors_max: int | None = None
        self.open_files_count = 0
        # A dishonest disk: these kinds of syncs return without syncing.
        self.ignored_syncs: frozenset[OperationKind] = frozenset()
        self.lock: Final = threading.RLock()
        self._root = DirectoryNode()
        self._directory_changes: list[DirectoryChange] = []
        self._errors = WriteBackErrors()
        # What the descriptor of each held directory has seen of the file system's errors.
        self._held: dict[str, int] = {}

    @property
    def is_synced(self) -> bool:
        return True

    def crash(self, rng: random.Random, survival: Survival | None = None) -> MemoryDisk:
        """The disk after a power loss: everything synced, and of the rest what `survival` keeps.

        Without `survival` each file, and the directories, get one drawn from `rng`.
        """
        with self.lock:
            after = MemoryDisk()
            after._root = surviving_tree(self._root, self._directory_changes, rng, survival)
            return after

    def kill(self) -> MemoryDisk:
        """The disk as the next process finds it after this one was killed: nothing is lost, unsynced changes stay
        unsynced."""
        with self.lock:
            after = MemoryDisk()
            kept = copy.deepcopy((self._root, self._directory_changes, self._errors))
            after._root, after._directory_changes, after._errors = kept
            return after

    def lose_write_back(self, path_contains: str = "", error: int = errno.EIO) -> None:
        """The kernel fails to write back the dirty pages of these files: they count as clean, and are lost."""
        with self.lock:
            for path, node in _nodes_below(self._root, ""):
                if path_contains in path and node.changes:
                    node.forget_changes()
                    node.errors.add(error)
            self._errors.add(error)

    def files(self) -> dict[str, bytes]:
        """The content of every file by its path, as programs see it now."""
        with self.lock:
            return {path: bytes(node.content) for path, node in _nodes_below(self._root, "")}

    def begin(self, kind: OperationKind, path: str, position: int = 0, length_bytes: int = 0) -> int | None:
        """Called before every operation; raises a planned error, returns the most bytes that a write may accept."""
        operation = Operation(kind, path, position, length_bytes)
        if kind not in {"read", "open"}:
            if self.on_operation is not None:
                self.on_operation(operation)
            self.operations.append(operation)
        if position < 0 or length_bytes < 0:
            raise _error(errno.EINVAL, path)
        return self.faults.strike(operation)

    def writable_bytes(self, node: FileNode, path: str, position: int, length_bytes: int) -> int:
        """The bytes of a write that fit; raises ENOSPC when none do."""
        growth = position + length_bytes - len(node.content)
        lacking = growth - self.free_bytes(path)
        if lacking <= 0 or growth <= 0:
            return length_bytes
        if lacking >= length_bytes:
            raise _error(errno.ENOSPC, path)
        return length_bytes - lacking

    def sync_nodes(self, kind: OperationKind, path: str, nodes: Sequence[FileNode], written_back_error: int) -> None:
        """Make files durable; when the sync fails, no later sync writes their unsynced changes.

        `written_back_error` is the error of an earlier loss that the descriptor gets now, 0 for none: the rest is
        synced.
        """
        try:
            self.begin(kind, path)
        except OSError as error:
            for node in nodes:
                node.forget_changes()
            self._report(error)
            raise
        if kind not in self.ignored_syncs:
            for node in nodes:
                node.sync()
        if written_back_error:
            lost = _error(written_back_error, path)
            self._report(lost)
            raise lost

    def _report(self, error: OSError) -> None:
        if self._sync_report is not None:
            self._sync_report(error)

    def report_failed_syncs(self, report: SyncReport | None) -> SyncReport | None:
        former, self._sync_report = self._sync_report, report
        return former

    def _need_descriptor(self, path: str) -> None:
        if self.descriptors_max is not None and self.open_files_count >= self.descriptors_max:
            raise _error(errno.EMFILE, path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        with self.lock:
            directory, name = self._parent(path)
            node = directory.entries.get(name)
            if isinstance(node, DirectoryNode):
                raise _error(errno.EISDIR, path)
            self._need_descriptor(path)
            if node is None:
                if not create:
                    raise _error(errno.ENOENT, path)
                self.begin("create", path)
                node = FileNode()
                self._change(EntryChange(directory, name, node))
            else:
                self.begin("open", path)
            return MemoryFile(self, node, path, read_only)

    def exists(self, path: str) -> bool:
        with self.lock:
            return self._find(path) is not None

    def file_size_bytes(self, path: str) -> int:
        with self.lock:
            node = self._existing(path)
            return len(node.content) if isinstance(node, FileNode) else 0

    def list_directory(self, path: str) -> Sequence[str]:
        with self.lock:
            directory = self._directory(path)
            self._need_descriptor(path)
            return sorted(directory.entries)

    def is_directory(self, path: str) -> bool:
        with self.lock:
            return isinstance(self._find(path), DirectoryNode)

    def make_directory(self, path: str) -> None:
        with self.lock:
            if self._find(path) is not None:
                return
            directory, name = self._parent(path)
            self.begin("make_directory", path)
            self._change(EntryChange(directory, name, DirectoryNode()))

    def rename(self, source: str, target: str) -> None:
        with self.lock:
            node = self._existing(source)
            source_directory, source_name = self._parent(source)
            target_directory, target_name = self._parent(target)
            replaced = target_directory.entries.get(target_name)
            if replaced is node:
                return
            if isinstance(replaced, DirectoryNode):
                if isinstance(node, FileNode):
                    raise _error(errno.EISDIR, target)
                if replaced.entries:
                    raise _error(errno.ENOTEMPTY, target)
            elif replaced is not None and isinstance(node, DirectoryNode):
                raise _error(errno.ENOTDIR, target)
            self.begin("rename", f"{source} -> {target}")
            self._change(
                EntryChange(source_directory, source_name, None), EntryChange(target_directory, target_name, node)
            )

    def remove(self, path: str) -> None:
        with self.lock:
            if isinstance(self._existing(path), DirectoryNode):
                raise _error(errno.EISDIR, path)
            self.begin("remove", path)
            self._change(EntryChange(*self._parent(path), None))

    def remove_directory(self, path: str) -> None:
        with self.lock:
            if self._directory(path).entries:
                raise _error(errno.ENOTEMPTY, path)
            self.begin("remove_directory", path)
            self._change(EntryChange(*self._parent(path), None))

    def link(self, source: str, target: str) -> None:
        with self.lock:
            node = self._existing(source)
            directory, name = self._parent(target)
            if isinstance(node, DirectoryNode):
                raise _error(errno.EPERM, source)
            if name in directory.entries:
                raise _error(errno.EEXIST, target)
            self.begin("link", f"{source} -> {target}")
            self._change(EntryChange(directory, name, node))

    def hold_directory(self, path: str) -> None:
        with self.lock:
            self._directory(path)
            if path not in self._held:
                self._need_descriptor(path)
                self._held[path] = self._errors.seen_by_new_descriptor()
                self.open_files_count += 1

    def release_directory(self, path: str) -> None:
        with self.lock:
            if self._held.pop(path, None) is not None:
                self.open_files_count -= 1

    def sync_directory(self, path: str) -> None:
        with self.lock:
            directory = self._directory(path)
            if path not in self._held:
                self._need_descriptor(path)
            try:
                self.begin("sync_directory", path)
            except OSError as error:
                self._report(error)
                raise
            if "sync_directory" not in self.ignored_syncs:
                self._directory_changes = sync_directory_changes(self._directory_changes, directory)

    def sync_file_system(self, path: str) -> None:
        with self.lock:
            self._directory(path)
            if path not in self._held:
                self._need_descriptor(path)
            seen = self._held.get(path, self._errors.seen_by_new_descriptor())
            error, seen = self._errors.error_since(seen)
            if path in self._held:
                self._held[path] = seen
            self.sync_nodes("sync_file_system", path, list(_file_nodes(self._root)), error)
            if "sync_file_system" in self.ignored_syncs:
                return
            for change in self._directory_changes:
                for entry in change:
                    entry.apply_to(entry.directory.durable)
            self._directory_changes = []

    def free_bytes(self, path: str) -> int:
        with self.lock:
            if self.room_bytes is None:
                return _ENDLESS_BYTES
            return max(0, self.room_bytes - sum(len(node.content) for node in _file_nodes(self._root)))

    def _change(self, *entries: EntryChange) -> None:
        for entry in entries:
            entry.apply_to(entry.directory.entries)
        self._directory_changes.append(entries)

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in _names_of(path):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def _existing(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._existing(path)
        if isinstance(node, FileNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        names = _names_of(path)
        if not names:
            raise _error(errno.EISDIR, path)
        return self._directory("/".join(names[:-1])), names[-1]


def _names_of(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in {"", "."}]
    assert ".." not in names, "a memory disk has no parent paths"
    return names


def _nodes_below(directory: DirectoryNode, path: str) -> Iterator[tuple[str, FileNode]]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, FileNode):
            yield f"{path}/{name}", node
        else:
            yield from _nodes_below(node, f"{path}/{name}")


def _file_nodes(directory: DirectoryNode) -> Iterator[FileNode]:
    """Each file, once for each of its names."""
    for node in directory.entries.values():
        if isinstance(node, FileNode):
            yield node
        else:
            yield from _file_nodes(node)

"""The data directory of a stopped broker: holds its lock, and reads its tree and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from types import MappingProxyType, TracebackType
from typing import Final

from ottla.cli.log.copied_tree import lost_tree_of
from ottla.coordination.configs import ConfigRegistry, ConfigsView
from ottla.coordination.embedded.backend import EmbeddedBackend
from ottla.coordination.embedded.errors import TreeStoreDamaged, TreeStoreError, TreeStoreForeign, TreeStoreLost
from ottla.coordination.layout import lay_out
from ottla.coordination.topics import TopicRegistry
from ottla.coordination.topics_view import NO_TOPICS, TopicsView
from ottla.coordination.tree import Tree
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.runtime.event_loop import run
from ottla.runtime.posix_disk import DIRECTORY_MODE, PosixDisk
from ottla.storage.checkpoints import META_PROPERTIES_FILE, read_meta_properties
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.directory_tree import TREE_FILE
from ottla.storage.directory.process_places import BROKER_PREFIX, folder_of
from ottla.storage.errors import DirectoryLocked, ForeignDirectory
from ottla.storage.log_files import topic_partition_of

# The tree cannot be read, and no later attempt will do better.
LOST_TREE: Final = (TreeStoreLost, TreeStoreDamaged, TreeStoreForeign)
NO_CONFIGS: Final = ConfigsView(0, MappingProxyType({}))


class StoppedDirectory:
    """A context manager.  Raises `OttlaError` when it is not a data directory of Ottla, or its broker runs, or its tree
    cannot be read; unless that `may_be_lost`: then `tree_problem` has the error, and there are no topics.
    """

    def __init__(self, path: str, *, may_be_lost: bool = False) -> None:
        self.path = os.path.abspath(path)
        self.disk = PosixDisk()
        self.topics: TopicsView = NO_TOPICS
        self.configs: ConfigsView = NO_CONFIGS
        self.tree_problem: TreeStoreError | None = None
        self.node_id = NodeId(0)
        self._may_be_lost = may_be_lost
        self._lock = FileLock()

    def __enter__(self) -> StoppedDirectory:
        if not os.path.isdir(self.path):
            raise OttlaError(f"{self.path} is not a directory", hint="name the broker's data directory (--data-dir)")
        found = read_meta_properties(self.disk, self.path)
        if found is None or directory_identity.FORMAT_NAME not in found:
            whose = f"has no {META_PROPERTIES_FILE}" if found is None else "was made by Apache Kafka"
            raise OttlaError(
                f"{self.path} is not a data directory of Ottla: it {whose}",
                hint="name a broker's data directory, not a partition's; `ottla log import` imports Apache Kafka's",
            )
        number = found.get("node.id", "0")
        if not number.isdecimal():
            raise OttlaError(
                f"{self.path}/{META_PROPERTIES_FILE} has node.id={number!r}", hint="write the number there"
            )
        self.node_id = NodeId(int(number))
        self._require_own_tree()
        try:
            self._lock.acquire(self.path)
        except DirectoryLocked as error:
            raise DirectoryLocked(str(error), hint="stop the broker first, and restart it afterwards") from None
        try:
            self.read_tree()
        except BaseException:
            self._lock.release()
            raise
        return self

    @property
    def tree_path(self) -> str:
        return f"{self.path}/{TREE_FILE}"

    def _require_own_tree(self) -> None:
        """Raises `ForeignDirectory`."""
        lost = lost_tree_of(self.disk, self.path)
        if lost is not None and directory_tree.is_shared(self.disk, self.path):
            # No process can be started that would make it one broker's.
            folder = folder_of(self.path)
            raise ForeignDirectory(
                f"{self.path} is that of several processes, which have lost what they share: {lost}",
                hint=f"stop them, move the partitions' directories from {folder}/{BROKER_PREFIX}* to {self.path}, "
                f"move {folder} elsewhere, remove the line {directory_tree.TREE_NAME}={directory_tree.OF_PROCESSES} "
                f"from {META_PROPERTIES_FILE}, and repair {self.path} then: it is one broker's",
            )
        directory_tree.require_own_tree(self.disk, self.path)

    def read_tree(self) -> None:
        """Once at the start; again after another part of the program has written it."""
        # Of a copy: SQLite would write to a damaged file, and remove its write-ahead log.
        lost = lost_tree_of(self.disk, self.path)
        if lost is not None and not (self._may_be_lost and isinstance(lost, LOST_TREE)):
            raise lost
        self.tree_problem = lost
        if lost is None:
            may_be_new = directory_tree.may_have_new_tree(self.disk, self.path)
            self.topics, self.configs = run(_read_tree(self.tree_path, may_be_new=may_be_new))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def partitions(self) -> list[TopicPartition]:
        """The partitions with a directory, by name and number."""
        names = [name for name in os.listdir(self.path) if os.path.isdir(f"{self.path}/{name}")]
        return sorted(found for name in names if (found := topic_partition_of(name)) is not None)

    def with_tree(self, act: Callable[[Tree], Awaitable[None]]) -> None:
        """Call a function with the tree."""
        run(_with_tree(self.tree_path, act, may_be_new=False))


def make_data_directory(path: str, node_id: int) -> None:
    """Claim a new or empty directory for this node; one that is a data directory of Ottla already stays unchanged."""
    disk = PosixDisk()
    path = os.path.abspath(path)
    os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)
    owner = directory_identity.owner_of(disk, path)
    if owner is directory_identity.Owner.OTTLA:
        return
    if owner is directory_identity.Owner.NONE:
        disk.close_to_others(path)
    directory_identity.check_or_write(disk, path, node_id, None)


def write_new_tree(path: str, act: Callable[[Tree], Awaitable[None]]) -> None:
    """Make the tree file at `path`, where nothing is yet, and call a function with the tree; it is closed, and whole in
    one file, when this returns.
    """
    run(_with_tree(path, act, may_be_new=True))


async def _with_tree(path: str, act: Callable[[Tree], Awaitable[None]], *, may_be_new: bool) -> None:
    backend = await EmbeddedBackend.open(path, may_be_new=may_be_new)
    try:
        tree = await backend.connect()
        await lay_out(tree)
        await act(tree)
    finally:
        await backend.close()


async def _read_tree(path: str, *, may_be_new: bool) -> tuple[TopicsView, ConfigsView]:
    backend = await EmbeddedBackend.open(path, may_be_new=may_be_new)
    try:
        tree = await backend.connect()
        await lay_out(tree)
        return await TopicRegistry(tree).refresh(), await ConfigRegistry(tree).refresh()
    finally:
        await backend.close()

"""Where the directories of the brokers of one machine are, and what each of them says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ottla.coordination.generations import HeldGeneration
from ottla.maintenance.resize_journal import read_journal
from ottla.model.identifiers import NodeId
from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.directory import directory_identity, directory_tree
from ottla.storage.directory.log_completeness import has_complete_logs
from ottla.storage.directory.process_places import BROKER_PREFIX, folder_of, place_of


class Places:
    """Where the directories of the brokers are; `first` has the data directory itself."""

    def __init__(self, disk: Disk, data_dir: str, first: NodeId) -> None:
        self.disk: Final = disk
        self.data_dir: Final = data_dir
        self.first: Final = first
        self.folder: Final = folder_of(data_dir)

    def path(self, node_id: NodeId) -> str:
        return self.data_dir if node_id == self.first else place_of(node_id, ()).path(self.data_dir)

    def others(self) -> list[NodeId]:
        """The brokers that have a folder, besides the first one."""
        if not self.disk.exists(self.folder):
            return []
        numbers = [
            name.removeprefix(BROKER_PREFIX)
            for name in self.disk.list_directory(self.folder)
            if name.startswith(BROKER_PREFIX)
        ]
        return sorted(NodeId(int(each)) for each in numbers if each.isascii() and each.isdigit())

    def current(self) -> list[NodeId]:
        """The brokers that have a data directory.  Raises `ForeignDirectory` for one of another broker."""
        found: list[NodeId] = []
        for node_id in (self.first, *self.others()):
            properties = checkpoints.read_meta_properties(self.disk, self.path(node_id))
            if properties is None:
                continue
            directory_identity.check(self.disk, self.path(node_id), node_id, None)
            found.append(node_id)
        return found

    def is_due(self, brokers: Sequence[NodeId]) -> bool:
        """Whether there is anything to do, as far as the directories show it."""
        current = self.current()
        if read_journal(self.disk, self.folder) is not None:
            return True
        # A directory that no broker has served has nothing to give away.
        has_topics = directory_tree.cluster_id_of(self.disk, self.data_dir) is not None
        return has_topics and set(current) != set(brokers)


def topic_of(disk: Disk, path: str) -> UUID | None:
    """The topic's id of a partition's directory; None where it cannot be read."""
    try:
        return checkpoints.read_topic_id(disk, path)
    except checkpoints.DamagedCheckpoint:
        return None


def held_generation(disk: Disk, path: str) -> HeldGeneration:
    return HeldGeneration(
        directory_identity.directory_id(disk, path),
        checkpoints.read_generation(disk, path),
        has_complete_logs(disk, path),
    )

"""The files of new logs: created and synced together, and removed again when a creation fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk, write_fully
from ottla.runtime.offload import Offload
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import FlushedEnds
from ottla.storage.directory.partition_directory import is_foreign
from ottla.storage.directory.removals import remove_tree
from ottla.storage.log_files import UNFLUSHED_FILE, segment_file_name

# Synced one by one each costs two syncs, all together two; beyond this one sync of the file system is cheaper, see
# flush.py.
CREATED_ONE_BY_ONE_MAX: Final = 2
# A record of a flushed end takes some 10 us.
RECORDS_PER_SLICE: Final = 64


class LogCreation:
    """Creates partition directories below `path`, and remembers those that it could neither complete nor remove."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        # By partition, the topic that it was created for.  Other modules read it.
        self.half_made: dict[TopicPartition, UUID] = {}

    def is_place_taken(self, topic_partition: TopicPartition) -> bool:
        """Whether a foreign directory has the log's name: `make` would mix the files, and `remove` would take
        them all.  Raises `OSError`.
        """
        path = f"{self._path}/{topic_partition}"
        if topic_partition in self.half_made or not self._disk.exists(path):
            return False
        return is_foreign(self._disk, path, self._disk.list_directory(path))

    async def make(
        self,
        wanted: Sequence[tuple[TopicPartition, UUID]],
        is_unflushed: Callable[[TopicPartition], bool],
        flushed_ends: FlushedEnds,
        offload: Offload,
    ) -> None:
        """Create a directory with an empty log for each, and its record of a flushed end, durably.

        `is_unflushed`: whether a log's flush policy lets it acknowledge what is on no disk.
        Raises `OSError`: call `remove` then.  A record without a log is harmless.
        """
        syncs_each = len(wanted) <= CREATED_ONE_BY_ONE_MAX
        for topic_partition, topic_id in wanted:
            self.remove_half_made(topic_partition)
            is_marked = is_unflushed(topic_partition)
            self._make_files(f"{self._path}/{topic_partition}", topic_id, is_marked=is_marked)
            await offload.pause()
        for first in range(0, len(wanted), RECORDS_PER_SLICE):
            keys = [(topic_id, name.partition) for name, topic_id in wanted[first : first + RECORDS_PER_SLICE]]
            # Also of those that have one in memory: its write may have failed.
            flushed_ends.add((*key, 0) for key in keys)
            await offload.pause()

        def sync() -> None:
            if syncs_each:
                for topic_partition, _ in wanted:
                    self._sync_files(f"{self._path}/{topic_partition}")
                flushed_ends.sync()
                self._disk.sync_directory(self._path)
            else:
                self._disk.sync_file_system(self._path)

        await offload(sync)

    async def remove(self, wanted: Sequence[tuple[TopicPartition, UUID]], offload: Offload) -> None:
        """Remove the files of a failed creation of these.  What cannot be removed now is left to `remove_half_made`."""

        def remove_all() -> list[tuple[TopicPartition, UUID]]:
            left: list[tuple[TopicPartition, UUID]] = []
            for topic_partition, topic_id in wanted:
                try:
                    self._remove_directory(f"{self._path}/{topic_partition}")
                except OSError:
                    left.append((topic_partition, topic_id))
            return left

        left = await offload(remove_all)
        for topic_partition, _ in wanted:
            self.half_made.pop(topic_partition, None)
        self.half_made.update(left)

    def remove_half_made(self, topic_partition: TopicPartition) -> None:
        """Remove what an earlier creation left of this log, if anything.  Raises `OSError`."""
        if topic_partition in self.half_made:
            self._remove_directory(f"{self._path}/{topic_partition}")
            del self.half_made[topic_partition]

    def _make_files(self, path: str, topic_id: UUID, *, is_marked: bool) -> None:
        self._disk.make_directory(path)
        if is_marked:
            self._disk.open(f"{path}/{UNFLUSHED_FILE}", create=True).close()
        self._disk.open(f"{path}/{segment_file_name(0)}", create=True).close()
        file = self._disk.open(f"{path}/{checkpoints.PARTITION_METADATA_FILE}", create=True)
        try:
            write_fully(file, 0, checkpoints.partition_metadata(topic_id))
        finally:
            file.close()

    def _sync_files(self, path: str) -> None:
        """Runs in any thread."""
        file = self._disk.open(f"{path}/{checkpoints.PARTITION_METADATA_FILE}")
        try:
            file.sync_data()
        finally:
            file.close()
        self._disk.sync_directory(path)

    def _remove_directory(self, path: str) -> None:
        if not self._disk.exists(path):
            return
        try:
            remove_tree(self._disk, path)
        except OSError:
            # Listing it needs a descriptor, and none may be left: these files are created first.
            for name in (UNFLUSHED_FILE, segment_file_name(0), checkpoints.PARTITION_METADATA_FILE):
                if self._disk.exists(f"{path}/{name}"):
                    self._disk.remove(f"{path}/{name}")
            self._disk.remove_directory(path)

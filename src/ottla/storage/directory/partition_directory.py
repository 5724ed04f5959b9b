"""A partition's directory: how new ones are created, and what a start finds in one or misses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk, write_fully
from ottla.runtime.offload import Offload
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import FlushedEnds, LogKey, read_flushed_ends
from ottla.storage.directory.removals import remove_tree
from ottla.storage.errors import CorruptLog, StorageError
from ottla.storage.log_files import (
    SEGMENT_SUFFIXES,
    UNFLUSHED_FILE,
    base_offsets_in,
    lost_base_offsets_in,
    segment_file_name,
    topic_partition_of,
)

_SMALL_FILES: Final = (UNFLUSHED_FILE, checkpoints.PARTITION_METADATA_FILE, checkpoints.LEADER_EPOCH_FILE)
# All that a log without a batch consists of; a small file is replaced by way of its `.tmp`.
_NAMES_OF_EMPTY_LOG: Final = frozenset(
    (
        *_SMALL_FILES,
        *(f"{name}.tmp" for name in _SMALL_FILES),
        *(segment_file_name(0, suffix) for suffix in SEGMENT_SUFFIXES),
    )
)
# Synced one by one each costs two syncs, all together two; beyond this one sync of the file system is cheaper, see
# flush.py.
CREATED_ONE_BY_ONE_MAX: Final = 2
# A record of a flushed end takes some 10 us.
RECORDS_PER_SLICE: Final = 64


class PartitionDirectory(NamedTuple):
    """A partition's directory with a readable topic id; `names` are listed once for all callers."""

    topic_partition: TopicPartition
    topic_id: UUID
    path: str
    names: Sequence[str]


def read_topic_id(disk: Disk, path: str, names: Sequence[str]) -> UUID | None:
    """The topic's id; None when there is neither an id nor a batch: a crash interrupted the log's creation, or the
    directory is not Ottla's (`is_foreign`).

    Raises `CorruptLog` when there are batches, and `OSError`.
    """
    metadata_path = f"{path}/{checkpoints.PARTITION_METADATA_FILE}"
    position, problem = -1, "the file with the topic's id is missing"
    if checkpoints.PARTITION_METADATA_FILE in names:
        try:
            return checkpoints.read_topic_id(disk, path)
        except checkpoints.DamagedCheckpoint as error:
            position, problem = 0, str(error)
    if _has_batches(disk, path, names):
        raise CorruptLog(metadata_path, position, 0, problem)
    return None


def is_foreign(disk: Disk, path: str, names: Sequence[str]) -> bool:
    """Whether a directory without a topic's id and without a batch holds anything that the creation of a log does not
    leave: many directories are named like topic-0.
    """
    return any(name not in _NAMES_OF_EMPTY_LOG or disk.is_directory(f"{path}/{name}") for name in names)


def is_no_log(disk: Disk, path: str) -> bool:
    """Whether a directory only has the name of a partition's: it has neither a topic's id nor a batch, and other files.

    Raises `OSError`.
    """
    names = disk.list_directory(path)
    return (
        checkpoints.PARTITION_METADATA_FILE not in names
        and not _has_batches(disk, path, names)
        and is_foreign(disk, path, names)
    )


def is_strange(disk: Disk, path: str) -> bool:
    """Whether nothing in a directory that is no log is what remains of one.  Raises `OSError`."""
    names = disk.list_directory(path)
    remains = base_offsets_in(names) or lost_base_offsets_in(names) or _NAMES_OF_EMPTY_LOG.intersection(names)
    return not remains and is_no_log(disk, path)


def _has_batches(disk: Disk, path: str, names: Sequence[str]) -> bool:
    return any(disk.file_size_bytes(f"{path}/{segment_file_name(base)}") for base in base_offsets_in(names))


def cannot_be_opened(path: str, error: OSError) -> StorageError:
    """The error of a log whose files the operating system refuses to open."""
    hint = "check the directory's owner and the disk, then start again; `ottla log verify DIR` looks at it"
    return StorageError(f"{path} cannot be opened: {error}", hint=hint)


class MissingLog(NamedTuple):
    """`flushed_end` is exclusive, and above 0."""

    topic_partition: TopicPartition
    topic_id: UUID
    flushed_end: int

    @property
    def problem(self) -> str:
        return f"its directory is gone; it was flushed up to offset {self.flushed_end}"


def missing_logs(
    ends: Mapping[LogKey, int], topic_ids: Mapping[str, UUID], present: Collection[TopicPartition]
) -> Iterator[MissingLog]:
    """Those of these topics that have a flushed end and are not present."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    for (topic_id, partition), end in ends.items():
        if end and topic_id in names:
            topic_partition = TopicPartition(names[topic_id], partition)
            if topic_partition not in present:
                yield MissingLog(topic_partition, topic_id, end)


def find_missing_logs(disk: Disk, data_dir: str, topic_ids: Callable[[], Mapping[str, UUID]]) -> list[MissingLog]:
    """By name and number; beside a running broker too.  Raises `OSError`, and what `topic_ids` raises."""
    # In this order: a log has its directory before its record, and a deletion takes the topic from the tree first.
    ends = read_flushed_ends(disk, data_dir)
    names = disk.list_directory(data_dir)
    present = {found for name in names if (found := topic_partition_of(name)) is not None}
    return sorted(missing_logs(ends, topic_ids(), present))


class LogCreation:
    """Creates partition directories below `path`, synced together.

    It remembers those that it could neither complete nor remove.
    """

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

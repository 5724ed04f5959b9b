"""A partition's directory as a start finds it: its topic, why it cannot be opened, or that it is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import LogKey, read_flushed_ends
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

"""A partition's directory as a start finds it: its topic, or why it cannot be opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.errors import CorruptLog, StorageError
from ottla.storage.log_files import LOG_SUFFIX


class PresentLog(NamedTuple):
    """A partition's directory with a readable topic id; `names` are listed once for all callers."""

    topic_partition: TopicPartition
    topic_id: UUID
    path: str
    names: Sequence[str]


def read_topic_id(disk: Disk, path: str, names: Sequence[str]) -> UUID | None:
    """The topic's id; None when a crash interrupted the log's creation: it has no id yet and no batch.

    Raises `CorruptLog` when there are batches, and `OSError`.
    """
    metadata_path = f"{path}/{checkpoints.PARTITION_METADATA_FILE}"
    position, problem = -1, "the file with the topic's id is missing"
    if checkpoints.PARTITION_METADATA_FILE in names:
        try:
            return checkpoints.read_topic_id(disk, path)
        except checkpoints.DamagedCheckpoint as error:
            position, problem = 0, str(error)
    if any(disk.file_size_bytes(f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX)):
        raise CorruptLog(metadata_path, position, 0, problem)
    return None


def cannot_be_opened(path: str, error: OSError) -> StorageError:
    """The error of a log whose files the operating system refuses to open."""
    hint = "check the directory's owner and the disk, then start again; `ottla log verify DIR` looks at it"
    return StorageError(f"{path} cannot be opened: {error}", hint=hint)

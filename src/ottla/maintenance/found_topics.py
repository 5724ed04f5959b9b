"""The topics of a data directory that has lost its tree, derived from its logs.

A partition's directory has the topic's name in its own, and the topic's id in `partition.metadata`.  Nothing there says
how many partitions there are: the greatest index counts, of the directories and of the records of flushed ends, which
also know partitions whose directories are gone.  Settings are in the tree alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk, read_file
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.directory.partition_directory import is_no_log
from ottla.storage.errors import StorageError
from ottla.storage.log_files import COMPACTED_FILE, topic_partition_of

# A directory of a greater index is no partition's: something else created it.
PARTITIONS_COUNT_MAX: Final = 100_000


class FoundTopic(NamedTuple):
    """`topic_id` is None where no partition says it; `leader_epochs` has one for each partition, above the log's."""

    name: str
    topic_id: UUID | None
    leader_epochs: tuple[int, ...]
    # Partitions that were flushed to and have no directory, and those of which nothing is known.
    gone: tuple[int, ...]
    unknown: tuple[int, ...]
    # Directories of this name whose files are another topic's.
    others: tuple[TopicPartition, ...]
    was_compacted: bool

    @property
    def partitions_count(self) -> int:
        return len(self.leader_epochs)


class FoundTopics(NamedTuple):
    """`nameless_count`: of topics that were flushed to, and have no directory at all."""

    topics: list[FoundTopic]
    nameless_count: int


class _Directory(NamedTuple):
    topic_id: UUID | None
    leader_epoch: int
    was_compacted: bool


def find_topics(disk: Disk, data_dir: str) -> FoundTopics:
    """Read the directories' small files; nothing is changed, and no log is read.  Raises `OSError`."""
    by_name: dict[str, dict[int, _Directory]] = {}
    for name in disk.list_directory(data_dir):
        found = topic_partition_of(name)
        if found is None or found.partition >= PARTITIONS_COUNT_MAX or not disk.is_directory(f"{data_dir}/{name}"):
            continue
        directory = _look(disk, f"{data_dir}/{name}")
        if directory is not None:
            by_name.setdefault(found.topic, {})[found.partition] = directory
    flushed: dict[UUID, set[int]] = {}
    for (topic_id, partition), end_offset in read_flushed_ends(disk, data_dir).items():
        if end_offset > 0 and partition < PARTITIONS_COUNT_MAX:
            flushed.setdefault(topic_id, set()).add(partition)
    topics = [_topic(name, directories, flushed) for name, directories in sorted(by_name.items())]
    named = {each.topic_id for directories in by_name.values() for each in directories.values()}
    return FoundTopics(topics, len(flushed.keys() - named))


def _look(disk: Disk, path: str) -> _Directory | None:
    """None for a directory that only has the name of a partition's."""
    if is_no_log(disk, path):
        return None
    try:
        topic_id = checkpoints.read_topic_id(disk, path)
    except checkpoints.DamagedCheckpoint:
        topic_id = None
    return _Directory(topic_id, greatest_leader_epoch(disk, path), disk.exists(f"{path}/{COMPACTED_FILE}"))


def greatest_leader_epoch(disk: Disk, path: str) -> int:
    """The greatest that the log's checkpoint has, -1 when it has none: a start reads the batches too."""
    file = f"{path}/{checkpoints.LEADER_EPOCH_FILE}"
    try:
        epochs = checkpoints.parse_epochs(read_file(disk, file), file) if disk.exists(file) else []
    except StorageError:
        epochs = []
    return epochs[-1].epoch if epochs else -1


def _topic(name: str, directories: Mapping[int, _Directory], flushed: Mapping[UUID, set[int]]) -> FoundTopic:
    topic_id = _likeliest(each.topic_id for each in directories.values())
    own = {index: each for index, each in directories.items() if each.topic_id in (topic_id, None)}
    recorded = flushed.get(topic_id, set()) if topic_id is not None else set()
    count = max([*own, *recorded]) + 1
    missing = [index for index in range(count) if index not in own]
    return FoundTopic(
        name,
        topic_id,
        tuple(own[index].leader_epoch + 1 if index in own else 0 for index in range(count)),
        tuple(index for index in missing if index in recorded),
        tuple(index for index in missing if index not in recorded),
        tuple(TopicPartition(name, index) for index in sorted(directories.keys() - own.keys())),
        any(each.was_compacted for each in own.values()),
    )


def _likeliest(ids: Iterable[UUID | None]) -> UUID | None:
    """That of most partitions; of several the same one at each call."""
    counts = Counter(each for each in ids if each is not None)
    return max(counts, key=lambda each: (counts[each], each.int)) if counts else None

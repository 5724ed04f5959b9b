"""Logs that held something and have no directory any more: a broker refuses them (`LogDirectory.refuse_lost`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage.directory.flushed_ends import LogKey, read_flushed_ends
from ottla.storage.log_files import topic_partition_of


class GoneLog(NamedTuple):
    """`flushed_end` is exclusive, and above 0."""

    topic_partition: TopicPartition
    topic_id: UUID
    flushed_end: int

    @property
    def problem(self) -> str:
        return f"its directory is gone; it was flushed up to offset {self.flushed_end}"


def gone_logs(
    ends: Mapping[LogKey, int], topic_ids: Mapping[str, UUID], present: Collection[TopicPartition]
) -> Iterator[GoneLog]:
    """Those of these topics that have a flushed end and are not present."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    for (topic_id, partition), end in ends.items():
        if end and topic_id in names:
            topic_partition = TopicPartition(names[topic_id], partition)
            if topic_partition not in present:
                yield GoneLog(topic_partition, topic_id, end)


def find_gone_logs(disk: Disk, data_dir: str, topic_ids: Callable[[], Mapping[str, UUID]]) -> list[GoneLog]:
    """By name and number; beside a running broker too.  Raises `OSError`, and what `topic_ids` raises."""
    # In this order: a log has its directory before its record, and a deletion takes the topic from the tree first.
    ends = read_flushed_ends(disk, data_dir)
    names = disk.list_directory(data_dir)
    present = {found for name in names if (found := topic_partition_of(name)) is not None}
    return sorted(gone_logs(ends, topic_ids(), present))

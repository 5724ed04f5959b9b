"""How far the logs of a directory that is backed up were flushed, by its own records, as its broker would take them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import Disk
from ottla.storage import checkpoints
from ottla.storage.directory.flushed_ends import read_flushed_ends
from ottla.storage.directory.gone_logs import GoneLog, gone_logs


class RecordedEnds:
    """Read before the logs are, so that each of them reaches its end, or has lost something."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        """Raises `OSError`."""
        self._disk = disk
        self._data_dir = data_dir
        self._ends = read_flushed_ends(disk, data_dir)
        # After a clean stop a broker restores lost records from these, and opens a log without any.
        is_clean = checkpoints.has_clean_shutdown_mark(disk, data_dir)
        self._points = checkpoints.read_recovery_points(disk, data_dir) if is_clean else None

    def of(self, topic_partition: TopicPartition, topic_id: UUID | None, *, held_batches: bool) -> int | None:
        """The exclusive flushed end of a log; None when nothing proves it, so that its broker refuses the log.

        `held_batches`: whether it did before this call.  Raises `OSError`.
        """
        if topic_id is None:
            return None if held_batches else 0
        key = topic_id, topic_partition.partition
        if key in self._ends:
            return self._ends[key]
        if self._points is not None:
            return self._points.get(topic_partition, 0)
        # Of a topic that was made meanwhile: a log has its record before its first batch.
        found = read_flushed_ends(self._disk, self._data_dir).get(key)
        return found if found is not None or held_batches else 0

    def gone(self, topics: Mapping[str, UUID], copied: Collection[TopicPartition]) -> Iterator[GoneLog]:
        """The logs of these topics that held something before the backup began, and of which nothing was copied."""
        return gone_logs(self._ends, topics, copied)

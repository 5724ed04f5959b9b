"""A data directory of Apache Kafka, read only: its owner, whether its broker runs, its partitions."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition
from ottla.runtime.disk import read_file
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage import checkpoints
from ottla.storage.directory.directory_identity import FORMAT_NAME
from ottla.storage.directory.directory_lock import LOCK_FILE
from ottla.storage.errors import StorageError
from ottla.storage.log_files import topic_partition_of

# Topics that brokers keep for themselves: groups, transactions, the metadata log, share groups, tiered storage.
INTERNAL_TOPICS: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__cluster_metadata",
        "__share_group_state",
        "__remote_log_metadata",
    }
)
_META_VERSION: Final = "1"  # KRaft's; 0 is that of ZooKeeper's time


class NotImportable(StorageError):
    """The source, or a partition in it, cannot be imported as it is."""


class KafkaDirectory:
    """A context manager: its broker is stopped and stays so meanwhile.  Nothing is ever written to it.

    `was_clean` says whether the broker left the mark of a clean stop.  Raises `NotImportable`.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.disk = PosixDisk()
        self.was_clean = False
        self.cluster_id = ""
        self.node_id = ""
        self._lock_fd = -1
        self._log_starts: dict[TopicPartition, int] = {}
        self._recovery_points: dict[TopicPartition, int] = {}

    def __enter__(self) -> KafkaDirectory:
        if not os.path.isdir(self.path):
            raise NotImportable(f"{self.path} is no directory", hint="name a directory of Apache Kafka's log.dirs")
        self._identify()
        self._lock()
        self.was_clean = self.disk.exists(f"{self.path}/{checkpoints.CLEAN_SHUTDOWN_FILE}")
        self._log_starts = self._read_offsets(checkpoints.LOG_START_FILE)
        self._recovery_points = self._read_offsets(checkpoints.RECOVERY_POINT_FILE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)

    def _identify(self) -> None:
        found = checkpoints.read_meta_properties(self.disk, self.path)
        if found is None:
            raise NotImportable(
                f"{self.path} is no data directory of Apache Kafka: it has no {checkpoints.META_PROPERTIES_FILE}",
                hint="name a directory of log.dirs, the one that holds directories like orders-0",
            )
        if FORMAT_NAME in found:
            raise NotImportable(
                f"{self.path} is a data directory of Ottla already", hint=f"ottla serve --data-dir {self.path}"
            )
        if found.get("version") != _META_VERSION:
            raise NotImportable(
                f"{self.path} was written by Apache Kafka with ZooKeeper (version {found.get('version')})",
                hint="migrate it to KRaft with Apache Kafka 3.9 first",
            )
        self.cluster_id, self.node_id = found.get("cluster.id", ""), found.get("node.id", "")

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self.disk.exists(path):
            return {}
        try:
            return checkpoints.parse_offsets(read_file(self.disk, path), path, is_ours=False)
        except checkpoints.DamagedCheckpoint as error:
            raise NotImportable(
                str(error), hint="let Apache Kafka start and stop on the directory once: it rewrites the file"
            ) from error

    def _lock(self) -> None:
        """Java locks files by record (`fcntl`); a shared lock keeps its broker out and writes nothing."""
        path = f"{self.path}/{LOCK_FILE}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # a copy or backup: no broker can be using it
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            os.close(fd)
            raise NotImportable(
                f"{self.path} is in use: its broker runs", hint="stop Apache Kafka first (kafka-server-stop.sh)"
            ) from error
        self._lock_fd = fd

    def partitions(self) -> list[TopicPartition]:
        """Those that have a directory, without the broker's own topics, by name and number."""
        found = [
            partition
            for name in os.listdir(self.path)
            if (partition := topic_partition_of(name)) is not None and os.path.isdir(f"{self.path}/{name}")
        ]
        return sorted(partition for partition in found if partition.topic not in INTERNAL_TOPICS)

    def partition_path(self, partition: TopicPartition) -> str:
        return f"{self.path}/{partition}"

    def topic_id_of(self, partition: TopicPartition) -> UUID:
        path = self.partition_path(partition)
        topic_id = checkpoints.read_topic_id(self.disk, path)
        if topic_id is None:
            raise NotImportable(
                f"{path} has no {checkpoints.PARTITION_METADATA_FILE}, so its topic's id is not known",
                hint="start Apache Kafka 3 or 4 on it once: it writes the file",
            )
        return topic_id

    def log_start_of(self, partition: TopicPartition) -> int:
        """Its first readable offset by the checkpoint: 0 means where its first segment starts."""
        return self._log_starts.get(partition, 0)

    def recovery_point_of(self, partition: TopicPartition) -> int:
        """Its broker recorded everything below as flushed; all of the log after a clean stop."""
        return self._recovery_points.get(partition, 0)

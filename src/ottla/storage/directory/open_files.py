"""How many files a broker holds open: one for each segment that is read, some for each partition and connection."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.runtime.disk import Disk
from ottla.runtime.process import raise_open_files_limit
from ottla.storage.errors import TooManyOpenFiles
from ottla.storage.log_files import base_offsets_in, topic_partition_of

# The connections that a broker without a limit should accept.
CONNECTIONS_ROOM: Final = 1_000

_LIMIT_ADVISED_MIN: Final = 65_536

# What a start requires beside the logs: some connections, a new segment or two, modules that are read when they are
# first called.
FILES_LEFT_MIN: Final = 24
# What creations leave, one of so many: clients of all the partitions that were made must be able to connect.
_CREATIONS_LEAVE: Final = 16


class LogsRoom(NamedTuple):
    """How many logs fit into a process: each has its active segment open, from its start on."""

    limit: int
    # Open in a broker that has no logs.
    other_files: int

    def left(self, logs_count: int) -> int:
        """Descriptors left for connections and reads beside so many logs."""
        return self.limit - self.other_files - logs_count

    def allows_start(self, logs_count: int) -> bool:
        return self.left(logs_count) >= FILES_LEFT_MIN

    @property
    def logs_max(self) -> int:
        """How many there may be before a creation is refused: never more than a start would accept."""
        left_min = min(max(self.limit // _CREATIONS_LEAVE, FILES_LEFT_MIN), CONNECTIONS_ROOM)
        return self.left(left_min)


class OpenFilesNeed(NamedTuple):
    """Counts of files in a data directory."""

    partitions: int
    segments: int

    def descriptors(self, connections: int = CONNECTIONS_ROOM) -> int:
        return self.segments + self.partitions + min(connections, CONNECTIONS_ROOM)

    def text(self, limit: int) -> str:
        return f"{limit} files may be open; {self.segments} segments of {self.partitions} partitions are there"


def advice(needed: int) -> str:
    return f"raise the hard limit (ulimit -Hn, LimitNOFILE= of a systemd unit) to {max(_LIMIT_ADVISED_MIN, 2 * needed)}"


def open_files_need(disk: Disk, data_dir: str) -> OpenFilesNeed:
    """Count segments by their names; a directory that cannot be listed counts as empty."""
    try:
        names = [name for name in disk.list_directory(data_dir) if topic_partition_of(name) is not None]
    except OSError:
        return OpenFilesNeed(0, 0)
    segments = 0
    for name in names:
        try:
            segments += len(base_offsets_in(disk.list_directory(f"{data_dir}/{name}")))
        except OSError:
            continue
    return OpenFilesNeed(len(names), segments)


def too_many_open_files(disk: Disk, data_dir: str) -> TooManyOpenFiles:
    """The error for a broker that would soon run out; a few files must be closed again before this counts."""
    need = open_files_need(disk, data_dir)
    limit = raise_open_files_limit()
    return TooManyOpenFiles(
        f"too few files may be open for {data_dir}: "
        f"{need.text(0 if limit is None else limit.now)}, and about {need.descriptors()} are needed",
        hint=advice(need.descriptors()),
    )

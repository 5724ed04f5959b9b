"""How many files a broker holds open: one for each segment that is read, some for each partition and connection."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.runtime.disk import Disk
from ottla.runtime.limits_of_process import raise_open_files_limit
from ottla.storage.errors import TooManyOpenFiles
from ottla.storage.log_files import base_offsets_in, topic_partition_of

# The connections that a broker without a limit of its own should accept.
CONNECTIONS_ROOM: Final = 1_000

_LIMIT_ADVISED_MIN: Final = 65_536


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

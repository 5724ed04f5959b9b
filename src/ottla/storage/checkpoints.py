"""The small text files of a data directory, in Kafka's formats.

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`: "topic partition offset" lines for all logs
`replication-offset-checkpoint`: the same, the high watermark of each replicated log
`kept-from`: the same with broker epochs, of logs that lost records (not Kafka's)
`cleaner-offset-checkpoint`: the same, where each log's next clean starts
`leader-epoch-checkpoint`: "epoch start-offset" lines for one log
`generation`: how often the directory's broker has moved it (not Kafka's; broker/tree/directory_generation.py)
`partition.metadata`: the topic's id                        `meta.properties`: the directory's owner
`.kafka_cleanshutdown`: the last stop was clean

Every one is replaced whole (temporary, sync, rename, sync).  None of them is needed to keep data: where one is
damaged its reader continues without it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.identifiers import TopicPartition, uuid_from_text, uuid_to_text
from ottla.observe.events import fields
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.errors import StorageError

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
KEPT_FROM_FILE: Final = "kept-from"
GENERATION_FILE: Final = "generation"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"
META_PROPERTIES_FILE: Final = "meta.properties"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

VERSION: Final = 0
# Kafka's format has no field for a checksum, so it is the offset of a partition that no topic has: Kafka's reader looks
# partitions up by name and ignores it.
CHECKSUM_ENTRY: Final = TopicPartition("__ottla_checksum", 0)
GENERATION_ENTRY: Final = TopicPartition("__ottla_generation", 0)

_log = logging.getLogger(__name__)

_INT64_MAX: Final = 2**63 - 1
_INT32_MAX: Final = 2**31 - 1


class DamagedCheckpoint(StorageError):
    """A checkpoint whose content cannot be what was written."""

    hint = "checkpoints are rebuilt from the logs; nothing is lost by continuing without this one"


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


def _format_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode()


def _parse_lines(content: bytes, path: str) -> list[list[str]]:
    """The fields of each line; an empty file has none."""
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise DamagedCheckpoint(f"{path} is no text: {error}") from error
    if not lines:
        return []
    if not content.endswith(b"\n"):
        # A torn last line may still be a number, and another one.
        raise DamagedCheckpoint(f"{path} ends inside a line")
    version = _parse_int(lines[0], _INT32_MAX, path)
    if version != VERSION:
        raise DamagedCheckpoint(f"{path} has version {version}, {VERSION} is known")
    if len(lines) < 2:
        raise DamagedCheckpoint(f"{path} ends after its version")
    count = _parse_int(lines[1], _INT32_MAX, path)
    if count != len(lines) - 2:
        raise DamagedCheckpoint(f"{path} announces {count} entries and has {len(lines) - 2}")
    return [line.split() for line in lines[2:]]


def _parse_int(text: str, limit: int, path: str) -> int:
    if not text.isdecimal() or len(text) > 19 or int(text) > limit:
        raise DamagedCheckpoint(f"{path}: {text!r} is no number from 0 to {limit}")
    return int(text)


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    topic, partition = CHECKSUM_ENTRY
    return _format_lines([*lines, f"{topic} {partition} {_checksum(lines)}"])


def parse_offsets(content: bytes, path: str, *, is_ours: bool = True) -> dict[TopicPartition, int]:
    """The offsets by partition.  Raises `DamagedCheckpoint`, also for a wrong checksum, or for none in Ottla's file."""
    offsets: dict[TopicPartition, int] = {}
    entries = _parse_lines(content, path)
    for entry in entries:
        if len(entry) != 3:
            raise DamagedCheckpoint(f"{path}: {' '.join(entry)!r} is not topic, partition and offset")
        topic_partition = TopicPartition(entry[0], _parse_int(entry[1], _INT32_MAX, path))
        if topic_partition in offsets:
            raise DamagedCheckpoint(f"{path} names {topic_partition} twice")
        offsets[topic_partition] = _parse_int(entry[2], _INT64_MAX, path)
    checksum = offsets.pop(CHECKSUM_ENTRY, None)
    if checksum is None and not is_ours:
        return offsets
    if checksum != _checksum([" ".join(entry) for entry in entries[:-1]]):
        raise DamagedCheckpoint(f"{path}: the checksum is not that of its lines")
    return offsets


def _checksum(lines: list[str]) -> int:
    return crc32c("\n".join(lines).encode())


def read_recovery_points(disk: Disk, directory: str) -> dict[TopicPartition, int]:
    """A lower bound of each log's flushed end (exclusive); empty when the file is missing or damaged."""
    return _read_offsets(disk, f"{directory}/{RECOVERY_POINT_FILE}") or {}


def write_recovery_points(disk: Disk, directory: str, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, f"{directory}/{RECOVERY_POINT_FILE}", format_offsets(offsets))


def read_log_starts(disk: Disk, directory: str) -> dict[TopicPartition, int] | None:
    """The log start of each log whose start moved.  None when the file is damaged: then no start is known."""
    return _read_offsets(disk, f"{directory}/{LOG_START_FILE}")


def write_log_starts(disk: Disk, directory: str, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, f"{directory}/{LOG_START_FILE}", format_offsets(offsets))


def read_cleaned_ends(disk: Disk, directory: str) -> dict[TopicPartition, int]:
    """Up to where each log was cleaned; a log that is not named is cleaned from its start."""
    return _read_offsets(disk, f"{directory}/{CLEANER_FILE}") or {}


def write_cleaned_ends(disk: Disk, directory: str, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, f"{directory}/{CLEANER_FILE}", format_offsets(offsets))


def read_high_watermarks(disk: Disk, directory: str) -> dict[TopicPartition, int]:
    """The high watermark (exclusive) of each replicated log, as it was a while before the stop."""
    return _read_offsets(disk, f"{directory}/{HIGH_WATERMARK_FILE}") or {}


def write_high_watermarks(disk: Disk, directory: str, offsets: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, f"{directory}/{HIGH_WATERMARK_FILE}", format_offsets(offsets))


def read_kept_from(disk: Disk, directory: str) -> dict[TopicPartition, int] | None:
    """The first broker epoch under which each of some logs is kept.  None when the file is damaged."""
    return _read_offsets(disk, f"{directory}/{KEPT_FROM_FILE}")


def write_kept_from(disk: Disk, directory: str, broker_epochs: Mapping[TopicPartition, int]) -> None:
    replace_file(disk, f"{directory}/{KEPT_FROM_FILE}", format_offsets(broker_epochs))


def read_generation(disk: Disk, directory: str) -> int:
    """The directory's generation; 0 when the file is missing or damaged."""
    return (_read_offsets(disk, f"{directory}/{GENERATION_FILE}") or {}).get(GENERATION_ENTRY, 0)


def write_generation(disk: Disk, directory: str, generation: int) -> None:
    replace_file(disk, f"{directory}/{GENERATION_FILE}", format_offsets({GENERATION_ENTRY: generation}))


def _read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int] | None:
    """None when the file is damaged, empty when it is missing."""
    if not disk.exists(path):
        return {}
    try:
        return parse_offsets(read_file(disk, path), path)
    except DamagedCheckpoint as error:
        _log.warning("checkpoint.damaged", extra=fields(path=path, reason=str(error)))
        return None


def format_epochs(entries: Iterable[EpochStart]) -> bytes:
    return _format_lines([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def parse_epochs(content: bytes, path: str) -> list[EpochStart]:
    """The epochs in order.  Raises `DamagedCheckpoint`, also when epochs or offsets do not rise."""
    entries: list[EpochStart] = []
    for entry in _parse_lines(content, path):
        if len(entry) != 2:
            raise DamagedCheckpoint(f"{path}: {' '.join(entry)!r} is not an epoch and its start offset")
        start = EpochStart(_parse_int(entry[0], _INT32_MAX, path), _parse_int(entry[1], _INT64_MAX, path))
        if entries and (start.epoch <= entries[-1].epoch or start.start_offset <= entries[-1].start_offset):
            raise DamagedCheckpoint(f"{path}: epoch {start.epoch} does not rise above epoch {entries[-1].epoch}")
        entries.append(start)
    return entries


def partition_metadata(topic_id: UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode()


def parse_partition_metadata(content: bytes, path: str) -> UUID:
    """The topic's id.  Raises `DamagedCheckpoint`."""
    try:
        return _topic_id_in(content)
    except ValueError as error:
        raise DamagedCheckpoint(f"{path}: {error}") from error


# All partitions of a topic have the same few bytes, and a start reads the partitions of one after another.
@lru_cache(maxsize=1)
def _topic_id_in(content: bytes) -> UUID:
    """Raises `ValueError`."""
    values = _parse_values(content, ":")
    if values.get("version") != str(VERSION):
        raise ValueError(f"it has version {values.get('version')}, {VERSION} is known")
    return uuid_from_text(values.get("topic_id", ""))


def read_topic_id(disk: Disk, directory: str) -> UUID | None:
    """The topic's id of a partition's directory, None when the file is missing.  Raises `DamagedCheckpoint`."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    return parse_partition_metadata(read_file(disk, path), path) if disk.exists(path) else None


def write_topic_id(disk: Disk, directory: str, topic_id: UUID) -> None:
    replace_file(disk, f"{directory}/{PARTITION_METADATA_FILE}", partition_metadata(topic_id))


def read_meta_properties(disk: Disk, directory: str) -> dict[str, str] | None:
    """None when the file is missing.  Raises `DamagedCheckpoint`: the owner must not be guessed."""
    path = f"{directory}/{META_PROPERTIES_FILE}"
    if not disk.exists(path):
        return None
    try:
        found = _parse_values(read_file(disk, path), "=")
        _check_meta_properties(found)
    except ValueError as error:
        hint = f"it says whose directory this is: restore {META_PROPERTIES_FILE} from a backup"
        raise DamagedCheckpoint(f"{path} is damaged: {error}", hint=hint) from error
    return found


def _check_meta_properties(found: Mapping[str, str]) -> None:
    """Raises `ValueError` for what no broker has written.  A file that was cut must not pass for another owner's."""
    node_id = found.get("node.id", found.get("broker.id"))
    # Ottla claims a directory before it knows its cluster; Apache Kafka before 0.10.1 had no id of a cluster.
    is_of_a_cluster = "cluster.id" in found or found.get("version") == "0"
    if "version" not in found or node_id is None or not (is_of_a_cluster or any(map(_is_ours, found))):
        missing = "version" if "version" not in found else "node.id" if node_id is None else "cluster.id"
        raise ValueError(f"it has no {missing}")
    if not (node_id.isascii() and node_id.isdigit()):
        raise ValueError(f"node.id {node_id!r} is no number")


def _is_ours(name: str) -> bool:
    return name.startswith("ottla.")


def write_meta_properties(disk: Disk, directory: str, properties: Mapping[str, str]) -> None:
    """Names and values may hold anything but line ends and separators."""
    assert not any(set("=:\n\r\\") & set(name + value) for name, value in properties.items())
    lines = ["#", *(f"{name}={value}" for name, value in properties.items())]
    replace_file(disk, f"{directory}/{META_PROPERTIES_FILE}", "".join(f"{line}\n" for line in lines).encode())


def _parse_values(content: bytes, separator: str) -> dict[str, str]:
    """Raises `ValueError`."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text: {error}") from error
    values: dict[str, str] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        name, found, value = line.partition(separator)
        if not found or name.strip() in values:
            raise ValueError(f"{line!r} is no `name{separator}value`, or its name is there twice")
        # Java escapes these in values; base64 ids and numbers have no other character to escape.
        values[name.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    return values


def write_clean_shutdown_mark(disk: Disk, directory: str, broker_epoch: int = -1) -> None:
    """Only to be called when everything in the directory is whole and synced."""
    content = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(disk, f"{directory}/{CLEAN_SHUTDOWN_FILE}", content.encode())


def has_clean_shutdown_mark(disk: Disk, directory: str) -> bool:
    """Whether the last stop was clean, and no start followed."""
    return disk.exists(f"{directory}/{CLEAN_SHUTDOWN_FILE}")


def take_clean_shutdown_mark(disk: Disk, directory: str) -> bool:
    """Whether the last stop was clean.  The marker is removed, durably, when this returns: it counts once."""
    if not has_clean_shutdown_mark(disk, directory):
        return False
    disk.remove(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
    disk.sync_directory(directory)
    return True


# Offsets of partitions in memory, and the checkpoint that has them on disk.
#
# The event loop changes the offsets, a thread of its pool writes them: a sync may take as long as the disk likes.


class OffsetCheckpoint:
    """`offsets` are changed on the loop; after a change call `changed`, and `write` to make it durable."""

    def __init__(
        self, offsets: Mapping[TopicPartition, int], write: Callable[[Mapping[TopicPartition, int]], None]
    ) -> None:
        """`offsets`: as the file has them.  `write` replaces the file, durably, or raises `OSError`."""
        self.offsets = dict(offsets)
        self._write = write
        self._writing = threading.Lock()
        self._changes_count = 0
        # Of these changes.  A write that is under way has not made any durable.
        self._durable_count = 0

    @property
    def is_stale(self) -> bool:
        """Whether the file may differ from `offsets`."""
        return self._durable_count != self._changes_count

    def changed(self) -> None:
        self._changes_count += 1

    def write(self) -> None:
        """Make all changes before this call durable.  May be called in any thread.  Raises `OSError`: call it again."""
        with self._writing:
            if not self.is_stale:
                return
            # Counted before the copy, which is made in one operation of the interpreter: the loop may change the
            # offsets meanwhile.
            count = self._changes_count
            self._write(dict(self.offsets))
            self._durable_count = count

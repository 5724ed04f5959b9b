"""What a change of the number of brokers does, written before anything is changed: a crash is continued from it.

One JSON object behind its checksum, replaced whole.  It has every value that the change needs, so that each step can be
repeated after the files that it was read from are gone.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination.topic_nodes import decode_state, encode_state
from ottla.model.identifiers import NodeId, TopicPartition, uuid_from_text, uuid_to_text
from ottla.model.partition_state import PartitionState
from ottla.records.checksum import crc32c
from ottla.runtime.disk import Disk, read_file, replace_file
from ottla.storage.directory.process_places import RESIZE_FILE
from ottla.storage.errors import StorageError

_VERSION: Final = 1


class Phase(StrEnum):
    """The steps that may have been started; each can be repeated, and none that is over is."""

    PREPARE = "prepare"
    """The directories get what they need to have the logs; logs that give way are removed."""

    MOVE = "move"
    """The logs change their directories; then the tree and the former directories follow."""


class LogRecords(NamedTuple):
    """What the data directory of a log records of it outside of its own directory; None: nothing."""

    flushed_end: int | None
    log_start: int | None
    high_watermark: int | None
    cleaned_end: int | None
    recovery_point: int | None


class LogMove(NamedTuple):
    """A log that changes its broker.  `has_log` is False where there is none yet, or none any more."""

    source: NodeId
    target: NodeId
    has_log: bool
    records: LogRecords


class PartitionChange(NamedTuple):
    """The replicas and the state that a partition gets, over the replicas `before` and leader epoch `epoch_before`.

    `gives_way` are brokers whose own log of the partition, or another's of the same name, is removed first; `dropped`
    those whose log is removed last.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    epoch_before: int
    before: tuple[NodeId, ...]
    replicas: tuple[NodeId, ...]
    state: PartitionState
    moves: tuple[LogMove, ...]
    gives_way: tuple[NodeId, ...]
    dropped: tuple[NodeId, ...]


class ResizeJournal(NamedTuple):
    """`brokers` are those from now on, the first one first; `removed` had directories, and have none afterwards.

    `made` are brokers whose directories are created; `unclean` those that get a log whose broker was not stopped in
    order.
    """

    phase: Phase
    brokers: tuple[NodeId, ...]
    removed: tuple[NodeId, ...]
    made: tuple[NodeId, ...]
    unclean: tuple[NodeId, ...]
    partitions: tuple[PartitionChange, ...]


def read_journal(disk: Disk, folder: str) -> ResizeJournal | None:
    """None where no change is under way.  Raises `StorageError` for one that cannot be read, and `OSError`."""
    path = f"{folder}/{RESIZE_FILE}"
    if not disk.exists(path):
        return None
    content = read_file(disk, path)
    try:
        checksum, text = content.split(b"\n", 1)
        if int(checksum) != crc32c(text):
            raise ValueError("its checksum is not that of its text")
        return _decoded(path, json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} cannot be read: {error}",
            hint="it says where the logs of an interrupted change of --processes are: restore it from a backup, "
            "or compare each broker's directory with its topics (`ottla log verify`) before you remove it",
        ) from error


def write_journal(disk: Disk, folder: str, journal: ResizeJournal) -> None:
    """Durably.  Raises `OSError`."""
    text = json.dumps(_encoded(journal), separators=(",", ":")).encode()
    replace_file(disk, f"{folder}/{RESIZE_FILE}", b"%d\n%b" % (crc32c(text), text))


def remove_journal(disk: Disk, folder: str) -> None:
    """The change is complete, durably.  Raises `OSError`."""
    disk.remove(f"{folder}/{RESIZE_FILE}")
    disk.sync_directory(folder)


def _encoded(journal: ResizeJournal) -> dict[str, object]:
    return {
        "version": _VERSION,
        "phase": journal.phase,
        "brokers": journal.brokers,
        "removed": journal.removed,
        "made": journal.made,
        "unclean": journal.unclean,
        "partitions": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "topic_id": uuid_to_text(each.topic_id),
                "epoch_before": each.epoch_before,
                "before": each.before,
                "replicas": each.replicas,
                "state": json.loads(encode_state(each.state)),
                "moves": each.moves,
                "gives_way": each.gives_way,
                "dropped": each.dropped,
            }
            for each in journal.partitions
        ],
    }


def _decoded(path: str, content: dict[str, object]) -> ResizeJournal:
    if content["version"] != _VERSION:
        raise ValueError(f"it has version {content['version']!r}, and this Ottla knows {_VERSION}")
    partitions = content["partitions"]
    if not isinstance(partitions, list):
        raise TypeError("its partitions are no array")
    return ResizeJournal(
        Phase(str(content["phase"])),
        _nodes(content["brokers"]),
        _nodes(content["removed"]),
        _nodes(content["made"]),
        _nodes(content["unclean"]),
        tuple(_partition(path, each) for each in partitions),
    )


def _partition(path: str, content: dict[str, object]) -> PartitionChange:
    moves = content["moves"]
    if not isinstance(moves, list):
        raise TypeError("its moves are no array")
    return PartitionChange(
        TopicPartition(str(content["topic"]), _number(content["partition"])),
        uuid_from_text(str(content["topic_id"])),
        _number(content["epoch_before"]),
        _nodes(content["before"]),
        _nodes(content["replicas"]),
        decode_state(path, json.dumps(content["state"]).encode()),
        tuple(
            LogMove(NodeId(_number(source)), NodeId(_number(target)), bool(has_log), LogRecords(*map(_end, records)))
            for source, target, has_log, records in moves
        ),
        _nodes(content["gives_way"]),
        _nodes(content["dropped"]),
    )


def _nodes(found: object) -> tuple[NodeId, ...]:
    if not isinstance(found, list):
        raise TypeError(f"{found!r} are no node ids")
    return tuple(NodeId(_number(each)) for each in found)


def _number(found: object) -> int:
    if type(found) is not int:
        raise TypeError(f"{found!r} is no number")
    return found


def _end(found: object) -> int | None:
    return None if found is None else _number(found)

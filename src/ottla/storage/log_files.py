"""The names of files in a partition's directory, and what of them is only left over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ottla.model.identifiers import TopicPartition, topic_name_problem

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
DELETED_DIRECTORY_SUFFIX: Final = "-delete"
# A damaged log that another one replaces: kept until an operator removes it.
DAMAGED_DIRECTORY_SUFFIX: Final = "-damaged"
# A log whose topic the tree of the cluster does not know: kept until an operator removes it, as in Apache Kafka.
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
# Committed records that a follower cut from its log: kept until an operator removes them.
CUT_DIRECTORY_SUFFIX: Final = "-cut"
# Behind that while they are copied.
UNFINISHED_CUT_SUFFIX: Final = ".unfinished"
# In a partition's directory: up to where records were taken out, so that gaps are no damage (compacted_mark.py).
COMPACTED_FILE: Final = "compacted"
# The log was found to be damaged in use, and other replicas are whole: its next opening reads all of it.
DISTRUSTED_FILE: Final = "distrusted"
# Its flush policy is `os`, or was since all of it was last flushed: acknowledged records may be on no disk.
UNFLUSHED_FILE: Final = "unflushed"
# In the data directory: how far each log is flushed (flushed_ends.py).
FLUSHED_ENDS_FILE: Final = "flushed-ends"
LEFTOVER_SUFFIXES: Final = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")

_LOG_NAME: Final = re.compile(r"([0-9]{20})\.log\Z", re.ASCII)
_SIDE_NAME: Final = re.compile(r"([0-9]{20})(\.index|\.timeindex|\.txnindex)\Z", re.ASCII)
_DELETED_NAME: Final = re.compile(r".+-([0-9]{1,10})\.([0-9a-f]{32})-delete\Z", re.ASCII | re.DOTALL)
_DIRECTORY_NAME: Final = re.compile(r"(.+)-([0-9]{1,10})\Z", re.ASCII | re.DOTALL)


def segment_file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{base_offset:020d}{suffix}"


def base_offsets_in(names: Sequence[str]) -> list[int]:
    """The base offsets of the segments among a directory's names, in order."""
    return sorted(int(match[1]) for name in names if (match := _LOG_NAME.match(name)))


def lost_base_offsets_in(names: Sequence[str]) -> list[int]:
    """The base offsets whose indexes are there without their log, in order."""
    present = set(base_offsets_in(names))
    found = {int(match[1]) for name in names if (match := _SIDE_NAME.match(name))}
    return sorted(found - present)


def leftovers_in(names: Sequence[str]) -> list[str]:
    """Files that a crash or a pending deletion left: half-written ones, and indexes without their log."""
    base_offsets = set(base_offsets_in(names))
    return [
        name
        for name in names
        if name.endswith(LEFTOVER_SUFFIXES) or ((match := _SIDE_NAME.match(name)) and int(match[1]) not in base_offsets)
    ]


def deleted_directory_name(topic_partition: TopicPartition, unique: str, suffix: str = DELETED_DIRECTORY_SUFFIX) -> str:
    """What a partition's directory is renamed to; `unique` is the topic id in hex where it is known."""
    # 255 bytes is the limit of most file systems; the unique part keeps cut names apart.
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return f"{topic_partition.topic[: 255 - len(tail)]}{tail}"


def deleted_log_of(directory_name: str) -> tuple[UUID, int] | None:
    """(topic id, partition) of a deleted log's directory; None where the name does not have the id."""
    match = _DELETED_NAME.match(directory_name)
    return None if match is None else (UUID(hex=match[2]), int(match[1]))


def topic_partition_of(directory_name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None when it is no partition's."""
    match = _DIRECTORY_NAME.match(directory_name)
    if match is None or topic_name_problem(match[1]) is not None:
        return None
    partition = int(match[2])
    if str(partition) != match[2] or partition > 2**31 - 1:
        return None
    return TopicPartition(match[1], partition)

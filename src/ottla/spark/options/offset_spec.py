"""A user's specification of start or end, and topics' offsets as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.spark.errors import SparkOptionError

EARLIEST: Final = -2
LATEST: Final = -1

Offsets: TypeAlias = dict[TopicPartition, int]
# The content of a stream's checkpoint: {"topic": {"0": 17}}.
OffsetDict: TypeAlias = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Every partition at its earliest (-2) or latest (-1) offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Each partition at its own offset; -2 and -1 as above.  Exactly the partitions that are read must be named."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """Every partition at its first record that is not older.

    Where there is none a start is an error, unless `is_latest_when_late`; an end is the log's.
    """

    option: str
    timestamp_ms: int
    is_latest_when_late: bool = False


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """Each partition at its first record that is not older than its own timestamp."""

    option: str
    timestamps_ms: Mapping[TopicPartition, int]
    is_latest_when_late: bool = False


@dataclass(frozen=True, slots=True)
class AtGroup:
    """Each partition where the consumer group has committed; at its earliest offset where it has not."""

    option: str
    group_id: str


OffsetSpec: TypeAlias = AtOffset | AtOffsets | AtTimestamp | AtTimestamps | AtGroup


def parse_offsets(option: str, text: str, number_min: int) -> Offsets:
    """`{"topic": {"0": 23, "1": -2}}` as the official connector writes it.  Raises `SparkOptionError`."""
    offsets: Offsets = {}
    example = f'the option {option!r} is not JSON like {{"topic": {{"0": 23, "1": {max(number_min, -2)}}}}}'
    document = _parse_json(option, text)
    if not isinstance(document, dict):
        raise SparkOptionError(example)
    for topic, numbers in document.items():
        _check_topic(option, topic)
        if not isinstance(numbers, dict):
            raise SparkOptionError(f"{example}: {topic!r} holds no partitions")
        for partition, number in numbers.items():
            if not partition.isascii() or not partition.isdigit() or int(partition) >= 2**31:
                raise SparkOptionError(f"the option {option!r} has the partition {partition!r} of topic {topic!r}")
            if not isinstance(number, int) or isinstance(number, bool) or not number_min <= number < 2**63:
                raise SparkOptionError(f"the option {option!r} has {number!r} for {topic}-{partition}")
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`.  Raises `SparkOptionError`."""
    document = _parse_json(option, text)
    assigned: set[TopicPartition] = set()
    if not isinstance(document, dict) or not document:
        raise SparkOptionError(f'the option {option!r} is not JSON like {{"topic": [0, 1]}}')
    for topic, partitions in document.items():
        _check_topic(option, topic)
        if not isinstance(partitions, list) or not partitions:
            raise SparkOptionError(f"the option {option!r} has no list of partitions for topic {topic!r}")
        for partition in partitions:
            if not isinstance(partition, int) or isinstance(partition, bool) or not 0 <= partition < 2**31:
                raise SparkOptionError(f"the option {option!r} has the partition {partition!r} of topic {topic!r}")
            assigned.add(TopicPartition(topic, partition))
    return tuple(sorted(assigned))


def _parse_json(option: str, text: str) -> object:
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SparkOptionError(f"the option {option!r} is {text[:80]!r}, which is not JSON: {error}") from None
    return document


def _check_topic(option: str, topic: str) -> None:
    problem = topic_name_problem(topic)
    if problem is not None:
        raise SparkOptionError(f"the option {option!r}: {problem}")


def to_dict(offsets: Mapping[TopicPartition, int]) -> OffsetDict:
    """For a stream's checkpoint, in a fixed order."""
    nested: OffsetDict = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def from_dict(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in nested.items()
        for partition, offset in offsets.items()
    }

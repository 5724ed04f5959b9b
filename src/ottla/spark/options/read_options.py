"""The options of a read, by the official connector's names, as frozen values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.client.offsets import IsolationLevel
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import Connection, parse_connection
from ottla.spark.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    OffsetSpec,
    parse_assignment,
    parse_offsets,
)
from ottla.spark.options.option_reader import OptionReader

FETCH_BYTES_DEFAULT: Final = 8 * 1024 * 1024
FETCH_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Topics:
    """All partitions of these topics."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """All partitions of every topic whose whole name matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Topics | TopicPattern | Assigned


def subscribed_names(subscription: Subscription) -> list[str] | None:
    """The topics that are named; None for a pattern."""
    if isinstance(subscription, Topics):
        return list(subscription.names)
    if isinstance(subscription, Assigned):
        return list(dict.fromkeys(partition.topic for partition in subscription.partitions))
    return None


def is_subscribed(subscription: Subscription, place: TopicPartition) -> bool:
    """Whether the subscription includes this partition, if it exists."""
    if isinstance(subscription, Topics):
        return place.topic in subscription.names
    if isinstance(subscription, Assigned):
        return place in subscription.partitions
    return re.fullmatch(subscription.pattern, place.topic) is not None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    connection: Connection
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    fetch_bytes: int
    rows_per_trigger_max: int | None
    input_partitions_min: int | None
    fails_on_data_loss: bool
    isolation: IsolationLevel


def parse_read_options(options: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Raises `SparkOptionError`, which names the option."""
    reader = OptionReader(options)
    connection = parse_connection(reader)
    subscription = _subscription(reader)
    starting = _spec(reader, "starting", AtOffset(LATEST if is_stream else EARLIEST))
    ending = _spec(reader, "ending", AtOffset(LATEST))
    rows_max = reader.number("maxOffsetsPerTrigger", at_least=1)
    partitions_min = reader.number("minPartitions", at_least=1, at_most=100_000)
    parsed = ReadOptions(
        connection,
        subscription,
        starting,
        ending,
        _fetch_bytes(reader),
        rows_max,
        partitions_min,
        reader.flag("failOnDataLoss", True),
        _isolation(reader),
    )
    includes_headers(options)
    reader.flag("includeHeaders", False)
    reader.refuse_rest()
    if is_stream:
        _refuse_in_streams(options)
    else:
        _refuse_in_batches(parsed)
    return parsed


def includes_headers(options: Mapping[str, str]) -> bool:
    return OptionReader(options).flag("includeHeaders", False)


def _fetch_bytes(reader: OptionReader) -> int:
    size = reader.number("kafka.max.partition.fetch.bytes", at_least=1, at_most=FETCH_BYTES_MAX)
    return FETCH_BYTES_DEFAULT if size is None else size


def _isolation(reader: OptionReader) -> IsolationLevel:
    levels = {level.name.lower(): level.name for level in IsolationLevel}
    return IsolationLevel[reader.choice("kafka.isolation.level", levels, IsolationLevel.READ_UNCOMMITTED.name)]


def _subscription(reader: OptionReader) -> Subscription:
    given = reader.one_of(("subscribe", "subscribePattern", "assign"))
    if given is None:
        raise SparkOptionError(
            "none of the options 'subscribe', 'subscribePattern' and 'assign' is given", hint="name the topics to read"
        )
    name, value = given
    if name == "assign":
        return Assigned(parse_assignment(name, value))
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise SparkOptionError(f"the option {name!r} is not a regular expression: {error}") from None
        return TopicPattern(value)
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise SparkOptionError(f"the option {name!r} names no topic", hint="write topic1,topic2")
    for topic in topics:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise SparkOptionError(f"the option {name!r}: {problem}")
    return Topics(topics)


def _spec(reader: OptionReader, side: str, default: OffsetSpec) -> OffsetSpec:
    """`startingOffsets` and its variants, or `endingOffsets` and its variants."""
    by_offset, by_time, by_times = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    given = reader.one_of((by_offset, by_time, by_times))
    if given is None:
        return default
    name, value = given
    if name == by_time:
        if not value.isascii() or not value.isdigit() or int(value) >= 2**63:
            raise SparkOptionError(f"the option {name!r} is {value!r}", hint="give milliseconds since 1970")
        return AtTimestamp(name, int(value))
    if name == by_times:
        return AtTimestamps(name, parse_offsets(name, value, 0))
    if value.lower() == "earliest":
        return AtOffset(EARLIEST)
    if value.lower() == "latest":
        return AtOffset(LATEST)
    if not value.startswith("{"):
        raise SparkOptionError(f"the option {name!r} is {value!r}", hint="use earliest, latest or JSON")
    return AtOffsets(name, parse_offsets(name, value, EARLIEST))


def _refuse_in_streams(options: Mapping[str, str]) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if name.lower() in {given.lower() for given in options}:
            raise SparkOptionError(
                f"the option {name!r} does not apply to a stream", hint="use spark.read, or Trigger.AvailableNow"
            )


def _refuse_in_batches(options: ReadOptions) -> None:
    if options.starting == AtOffset(LATEST):
        raise SparkOptionError(
            "the option 'startingOffsets' cannot be latest in a batch read: nothing to read", hint="use earliest"
        )
    if options.ending == AtOffset(EARLIEST):
        raise SparkOptionError("the option 'endingOffsets' cannot be earliest", hint="use latest")
    if isinstance(options.starting, AtOffsets) and LATEST in options.starting.offsets.values():
        raise SparkOptionError("the option 'startingOffsets' cannot have -1 (latest) in a batch read")
    if isinstance(options.ending, AtOffsets) and EARLIEST in options.ending.offsets.values():
        raise SparkOptionError("the option 'endingOffsets' cannot have -2 (earliest)")
    if options.rows_per_trigger_max is not None:
        raise SparkOptionError("the option 'maxOffsetsPerTrigger' does not apply to a batch read")

"""The options of a read, by the official connector's names, as frozen values.

Which partitions are read, from where to where, how much one micro-batch and one task read, and what becomes of losses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from ottla.client.fetching.offsets import IsolationLevel
from ottla.model.identifiers import TopicPartition, topic_name_problem
from ottla.model.own_names import LOST_OFFSETS_TOPIC
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, Connection, parse_connection
from ottla.spark.options.offset_spec import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    OffsetSpec,
    parse_assignment,
    parse_offsets,
)
from ottla.spark.options.option_reader import OptionReader
from ottla.spark.spark_features import INSTALLED, SparkFeature, SparkFeatures


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


_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")


def parse_subscription(reader: OptionReader) -> Subscription:
    """Raises `SparkOptionError`, which names the option."""
    given = reader.one_of(_SUBSCRIPTIONS)
    if given is None:
        reader.refuse_misspelt(_SUBSCRIPTIONS)
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


TASKS_MAX: Final = 100_000
TRIGGER_DELAY_MS_DEFAULT: Final = 15 * 60 * 1000
_TIME: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_MS: Final = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch; None: no limit.

    rows_max             offsets in all, in proportion to each partition's backlog
    bytes_max            about so many stored bytes, by the average of each log
    partition_rows_max   offsets of one partition
    rows_min             fewer are left for a later batch, for `delay_max_ms` at most
    """

    rows_max: int | None = None
    bytes_max: int | None = None
    partition_rows_max: int | None = None
    rows_min: int | None = None
    delay_max_ms: int = TRIGGER_DELAY_MS_DEFAULT

    @property
    def given(self) -> list[str]:
        """The names of the options that set a limit."""
        limits = {
            "maxOffsetsPerTrigger": self.rows_max,
            "maxBytesPerTrigger": self.bytes_max,
            "maxOffsetsPerPartition": self.partition_rows_max,
            "minOffsetsPerTrigger": self.rows_min,
        }
        return [name for name, limit in limits.items() if limit is not None]


@dataclass(frozen=True, slots=True)
class TaskSizes:
    """`tasks_min`: at least so many tasks, if there are so many offsets.  `rows_max`: offsets of one task."""

    tasks_min: int | None = None
    rows_max: int | None = None


def parse_trigger_limits(reader: OptionReader) -> TriggerLimits:
    """Raises `SparkOptionError`, which names the option."""
    rows_max = reader.number("maxOffsetsPerTrigger", at_least=1)
    rows_min = reader.number("minOffsetsPerTrigger", at_least=1)
    delay = reader.text("maxTriggerDelay")
    if rows_min is None and delay is not None:
        raise SparkOptionError("the option 'maxTriggerDelay' works only with 'minOffsetsPerTrigger'")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise SparkOptionError(
            f"the option 'minOffsetsPerTrigger' is {rows_min}, more than 'maxOffsetsPerTrigger', which is {rows_max}"
        )
    return TriggerLimits(
        rows_max,
        reader.number("maxBytesPerTrigger", at_least=1),
        reader.number("maxOffsetsPerPartition", at_least=1),
        rows_min,
        TRIGGER_DELAY_MS_DEFAULT if delay is None else _time_ms("maxTriggerDelay", delay),
    )


def parse_task_sizes(reader: OptionReader) -> TaskSizes:
    """Raises `SparkOptionError`, which names the option."""
    return TaskSizes(
        reader.number("minPartitions", at_least=1, at_most=TASKS_MAX),
        reader.number("maxRecordsPerPartition", at_least=1),
    )


def _time_ms(name: str, text: str) -> int:
    """As Spark writes times: `30s`, `15m`, `1h`; milliseconds without a unit."""
    match = _TIME.fullmatch(text.lower())
    if match is None:
        raise SparkOptionError(f"the option {name!r} is {text!r}", hint="write a time like 30s, 15m or 1h")
    return round(int(match[1]) * _UNIT_MS[match[2] or "ms"])


FETCH_BYTES_DEFAULT: Final = 8 * 1024 * 1024
FETCH_BYTES_MAX: Final = 1 << 30
# Accepted, since no result depends on them: consumers of groups, whose work Spark does here, and how fetches wait.
READS_WITHOUT_EFFECT: Final = frozenset(
    {
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "kafka.check.crcs",
        "kafka.client.rack",
        "kafka.fetch.max.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.fetch.min.bytes",
        "kafka.heartbeat.interval.ms",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.partition.assignment.strategy",
        "kafka.session.timeout.ms",
    }
)


class OnLoss(Enum):
    """The reaction to records that are proven to be lost: fail, continue silently, or record them and continue."""

    FAIL = "fail"
    SKIP = "skip"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """`reader` names this reader in entries of lost offsets: the group id, else the client id."""

    connection: Connection
    subscription: Subscription
    starting: OffsetSpec
    ending: OffsetSpec
    fetch_bytes: int
    limits: TriggerLimits
    task_sizes: TaskSizes
    on_loss: OnLoss
    lost_offsets_topic: str
    group_id: str | None
    isolation: IsolationLevel
    read_timeout_ms: int
    pushes_filters: bool
    # Batches that cannot be decoded are skipped and reported; else the read fails.
    skips_unreadable: bool

    @property
    def fails_on_data_loss(self) -> bool:
        return self.on_loss is OnLoss.FAIL

    @property
    def reader(self) -> str:
        return self.group_id or self.connection.client_id


def parse_read_options(
    options: Mapping[str, str], *, is_stream: bool, features: SparkFeatures = INSTALLED
) -> ReadOptions:
    """Raises `SparkOptionError`, which names the option; `NotInThisSpark` where a later Spark takes it."""
    reader = OptionReader(options)
    connection = parse_connection(reader)
    group_id = _group_id(reader)
    read_ms = reader.number("kafkaConsumer.pollTimeoutMs", at_least=TIMEOUT_MS_MIN, at_most=TIMEOUT_MS_MAX)
    parsed = ReadOptions(
        connection,
        parse_subscription(reader),
        _starting(reader, AtOffset(LATEST if is_stream else EARLIEST), group_id),
        _spec(reader, "ending", AtOffset(LATEST)),
        _fetch_bytes(reader),
        parse_trigger_limits(reader),
        parse_task_sizes(reader),
        _on_loss(reader),
        _lost_offsets_topic(reader),
        group_id,
        _isolation(reader),
        connection.call_timeout_ms if read_ms is None else read_ms,
        reader.flag("pushFilters", False),
        reader.flag("skipUnreadableBatches", False),
    )
    reader.flag("includeHeaders", False)
    # What would be another read is refused; these values are what is done anyhow.
    reader.choice("kafka.enable.auto.commit", {"false": "false"}, "false")
    reader.choice("kafka.allow.auto.create.topics", {"false": "false"}, "false")
    reader.without_effect(READS_WITHOUT_EFFECT)
    reader.refuse_rest()
    if parsed.pushes_filters:
        features.require(
            SparkFeature.PUSHED_FILTERS,
            "the option 'pushFilters'",
            "leave it out: the result is the same, and more is read; starting and ending offsets shorten a read, too",
        )
    if is_stream:
        _refuse_in_streams(options)
        for name in parsed.limits.given:
            features.require(
                SparkFeature.READ_LIMITS,
                f"the option {name!r}",
                "leave it out: each micro-batch then reads all that is there; maxRecordsPerPartition bounds its tasks",
            )
    else:
        _refuse_in_batches(parsed)
    return parsed


def includes_headers(options: Mapping[str, str]) -> bool:
    return OptionReader(options).flag("includeHeaders", False)


def _fetch_bytes(reader: OptionReader) -> int:
    size = reader.number("kafka.max.partition.fetch.bytes", at_least=1, at_most=FETCH_BYTES_MAX)
    return FETCH_BYTES_DEFAULT if size is None else size


def _isolation(reader: OptionReader) -> IsolationLevel:
    reader.one_of(("isolationLevel", "kafka.isolation.level"))
    levels = {level.name.lower(): level.name for level in IsolationLevel}
    of_kafka = reader.choice("kafka.isolation.level", levels, IsolationLevel.READ_UNCOMMITTED.name)
    return IsolationLevel[reader.choice("isolationLevel", levels, of_kafka)]


def _group_id(reader: OptionReader) -> str | None:
    group_id = reader.text("groupId")
    if group_id is not None and not group_id:
        raise SparkOptionError("the option 'groupId' is empty")
    return group_id


def _on_loss(reader: OptionReader) -> OnLoss:
    given = reader.one_of(("failOnDataLoss", "onDataLoss"))
    if given is None:
        return OnLoss.FAIL
    if given[0] == "failOnDataLoss":
        return OnLoss.FAIL if reader.flag("failOnDataLoss", True) else OnLoss.SKIP
    # `ledger` and `ledgerTopic` are the names of earlier releases.
    choices = {"fail": "fail", "record": "record", "ledger": "record"}
    return OnLoss(reader.choice("onDataLoss", choices, "fail"))


def _lost_offsets_topic(reader: OptionReader) -> str:
    given = reader.one_of(("lostOffsetsTopic", "ledgerTopic"))
    if given is None:
        return LOST_OFFSETS_TOPIC
    name, topic = given
    problem = topic_name_problem(topic)
    if problem is not None:
        raise SparkOptionError(f"the option {name!r}: {problem}")
    return topic


def _starting(reader: OptionReader, default: OffsetSpec, group_id: str | None) -> OffsetSpec:
    strategy = reader.choice("startingOffsetsByTimestampStrategy", {"error": "error", "latest": "latest"}, "error")
    spec = _spec(reader, "starting", default, group_id)
    if isinstance(spec, AtTimestamp | AtTimestamps):
        return replace(spec, is_latest_when_late=strategy == "latest")
    return spec


def _spec(reader: OptionReader, side: str, default: OffsetSpec, group_id: str | None = None) -> OffsetSpec:
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
    if value.lower() == "group" and side == "starting":
        if group_id is None:
            raise SparkOptionError("the option 'startingOffsets' is group", hint="name the group with 'groupId'")
        return AtGroup(name, group_id)
    if not value.startswith("{"):
        raise SparkOptionError(f"the option {name!r} is {value!r}", hint="use earliest, latest, group or JSON")
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
    if options.limits.given:
        raise SparkOptionError(f"the option {options.limits.given[0]!r} does not apply to a batch read")

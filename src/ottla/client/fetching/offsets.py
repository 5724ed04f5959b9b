"""Log starts and ends, and offsets by timestamp: ListOffsets (API key 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import groupby
from typing import Final, Literal, NamedTuple, TypeAlias

from ottla.client.wire.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import BrokerRefused, ClientError, error_code_of
from ottla.client.wire.leader_calls import Exchange, call_leaders, try_leaders
from ottla.client.wire.retrying import Deadline
from ottla.model.errors import ConfigError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

# The first version with the isolation level.
_VERSION_MIN: Final = {MAX_TIMESTAMP: 7}
_ISOLATION_VERSION_MIN: Final = 2


class IsolationLevel(IntEnum):
    """READ_COMMITTED reads below the last stable offset, without records of aborted transactions (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


# As users write it.
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]


def isolation_level_of(level: str | IsolationLevel) -> IsolationLevel:
    """ "read_uncommitted" or "read_committed", as users write it."""
    found = level if isinstance(level, IsolationLevel) else _LEVELS.get(level)
    if found is None:
        raise ConfigError(f"isolation_level is {level!r}", hint='use "read_uncommitted" or "read_committed"')
    return found


_LEVELS: Final = {level.name.lower(): level for level in IsolationLevel}


class OffsetAnswer(NamedTuple):
    """`offset` and `timestamp_ms` are -1 where there is none; LATEST and EARLIEST have no timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    questions: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, OffsetAnswer]:
    """For each partition EARLIEST (log start), LATEST (high watermark; with READ_COMMITTED the last stable offset),
    MAX_TIMESTAMP (the record with the largest timestamp) or a time in ms (the first record at or after it).
    """

    return call_leaders(cluster, "LIST_OFFSETS", questions, _exchange_at(isolation), timeout_ms)


def try_list_offsets(
    cluster: Cluster,
    questions: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, OffsetAnswer | ClientError]:
    """Like `list_offsets`, but a partition that cannot be queried has its reason instead, at once."""
    return try_leaders(cluster, questions, _exchange_at(isolation))


def _exchange_at(isolation: IsolationLevel) -> Exchange[int, OffsetAnswer]:
    def exchange(
        connection: Connection, asked: Mapping[TopicPartition, int], deadline: Deadline
    ) -> Mapping[TopicPartition, OffsetAnswer | BrokerRefused]:
        at_least, request = offset_request(asked, isolation)
        answer = connection.call(ApiKey.LIST_OFFSETS, request, ListOffsetsResponse, deadline, at_least=at_least)
        return offset_answers(answer)

    return exchange


def offset_request(asked: Mapping[TopicPartition, int], isolation: IsolationLevel) -> tuple[int, ListOffsetsRequest]:
    """With the version that it needs at least."""
    at_least = max(_VERSION_MIN.get(timestamp, 1) for timestamp in asked.values())
    if isolation is not IsolationLevel.READ_UNCOMMITTED:
        at_least = max(at_least, _ISOLATION_VERSION_MIN)
    return at_least, ListOffsetsRequest(isolation_level=isolation, topics=_topics(asked))


def log_ranges(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, range]:
    """The readable offsets of each partition now: from its log start to its high watermark."""
    wanted = list(partitions)
    starts = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    return {partition: range(starts[partition].offset, ends[partition].offset) for partition in wanted}


def _topics(asked: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    return [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=partition.partition, timestamp=asked[partition])
                for partition in partitions
            ],
        )
        for topic, partitions in groupby(sorted(asked), key=lambda partition: partition.topic)
    ]


def offset_answers(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAnswer | BrokerRefused]:
    answers: dict[TopicPartition, OffsetAnswer | BrokerRefused] = {}
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code:
                answers[partition] = BrokerRefused(error_code_of(row.error_code), str(partition))
            else:
                answers[partition] = OffsetAnswer(row.offset, row.timestamp, row.leader_epoch)
    return answers

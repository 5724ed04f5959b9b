"""ListOffsets (key 2), v1-v9.

By time: the first record below the high watermark whose timestamp is the given one or later, found by the time index
and by opening one batch, in steps; offset -1 and timestamp -1 when there is none.  Special times: -1 the high
watermark, -2 the log start, -3 (v7+) the record with the greatest
timestamp, -4 (v8+) the log start, since all of the log is local, -5 (v9+) nothing, since there is no tiered storage.
A special time that the version does not have, and any other negative one, is UNSUPPORTED_VERSION.  The leader epoch is
the current one for -1, else that of the record.  A partition that is named twice is INVALID_REQUEST,
answered once.

With isolation level 1 (v2+) the last stable offset takes the place of the high watermark.

A new leader whose high watermark does not yet cover what earlier leaders committed cannot return the latest offset, nor
that no record is as late as a given time: OFFSET_NOT_AVAILABLE, before v5 LEADER_NOT_AVAILABLE (KIP-207).  To a replica
the log end is the latest offset, and all records below it are searched.
Departure: any other replica id than that of a live broker to which the partition is assigned is ignored.
"""

from __future__ import annotations

import enum
import logging
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.partition_lookup import find_partition, storage_error_code
from ottla.broker.partitions.partition import Partition
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.identifiers import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from ottla.observe.events import frequent
from ottla.protocol.fetch import READ_COMMITTED
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.runtime.loop_offload import LoopOffload

log = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_OFFSET_NOT_AVAILABLE_FROM_VERSION: Final = 5
# The version from which on each special time may be requested.
_SPECIAL_FROM_VERSION: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


class _Reader(enum.Enum):
    CONSUMER = "reads below the high watermark"
    OF_COMMITTED = "reads below the last stable offset"
    REPLICA = "reads all of the log"


async def handle(request: ListOffsetsRequest, context: BrokerContext, call: Call) -> ListOffsetsResponse:
    turn = LoopOffload()
    named: dict[str, dict[int, ListOffsetsPartition]] = {}
    named_twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        of_topic = named.setdefault(topic.name, {})
        for wanted in topic.partitions:
            if of_topic.setdefault(wanted.partition_index, wanted) is not wanted:
                named_twice.add((topic.name, wanted.partition_index))
            await turn.pause()
        await turn.pause()
    topics: list[ListOffsetsTopicResponse] = []
    for name, of_topic in named.items():
        answers: list[ListOffsetsPartitionResponse] = []
        for wanted in of_topic.values():
            await turn.pause()
            if (name, wanted.partition_index) in named_twice:
                answers.append(_refused(wanted, ErrorCode.INVALID_REQUEST))
                continue
            answers.append(await _partition_answer(context, request, name, wanted, call.api_version, turn))
        topics.append(ListOffsetsTopicResponse(name, answers))
    return ListOffsetsResponse(topics=topics)


async def _partition_answer(
    context: BrokerContext,
    request: ListOffsetsRequest,
    topic_name: str,
    wanted: ListOffsetsPartition,
    api_version: int,
    turn: LoopOffload,
) -> ListOffsetsPartitionResponse:
    while True:
        partition = find_partition(context, topic_name, wanted.partition_index, wanted.current_leader_epoch)
        if isinstance(partition, ErrorCode):
            return _refused(wanted, partition)
        if wanted.timestamp < 0 and api_version < _SPECIAL_FROM_VERSION.get(wanted.timestamp, api_version + 1):
            return _refused(wanted, ErrorCode.UNSUPPORTED_VERSION)
        leader_epoch = partition.leader_epoch
        if _is_replica(context, partition, request.replica_id):
            reader = _Reader.REPLICA
        else:
            reader = _Reader.OF_COMMITTED if request.isolation_level == READ_COMMITTED else _Reader.CONSUMER
        answer = await _answer_of(partition, wanted, api_version, turn, reader)
        # A search lets others run: the topic may be another one now, or this broker not lead, or in another epoch.
        if find_partition(context, topic_name, wanted.partition_index, leader_epoch) is partition:
            return answer


async def _answer_of(
    partition: Partition, wanted: ListOffsetsPartition, api_version: int, turn: LoopOffload, reader: _Reader
) -> ListOffsetsPartitionResponse:
    try:
        found = await _look_up(partition, wanted.timestamp, turn, reader)
    except OttlaError as error:
        return _refused(wanted, storage_error_code(error))
    except OSError as error:
        # Opening or reading a segment failed: no descriptor left, a disk that cannot read.
        log.error("list_offsets.read_failed", extra=frequent(partition=partition.topic_partition, error=str(error)))
        return _refused(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    if found is None:
        is_known = api_version >= _OFFSET_NOT_AVAILABLE_FROM_VERSION
        return _refused(wanted, ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE)
    offset, timestamp_ms, leader_epoch = found
    return ListOffsetsPartitionResponse(
        wanted.partition_index, timestamp=timestamp_ms, offset=offset, leader_epoch=leader_epoch
    )


def _is_replica(context: BrokerContext, partition: Partition, replica_id: int) -> bool:
    """Whether a live broker with this id has a replica of the partition."""
    return (
        replica_id >= 0
        and replica_id in context.brokers.live.by_id
        and partition.node is not None
        and replica_id in partition.node.replicas
    )


def _end_of(partition: Partition, reader: _Reader) -> tuple[int, bool]:
    """Where the log ends for a reader, exclusive, and whether that is known."""
    if reader is _Reader.REPLICA:
        return partition.log_end_offset, True
    is_known = partition.has_reached_epoch_start and not partition.withholds_reads
    if reader is _Reader.CONSUMER:
        return partition.high_watermark, is_known
    return partition.last_stable_offset, is_known and partition.knows_stable_offset


async def _look_up(
    partition: Partition, timestamp: int, turn: LoopOffload, reader: _Reader
) -> tuple[int, int, int] | None:
    """Offset, timestamp, leader epoch; None while the leader cannot know."""
    end_offset, has_end = _end_of(partition, reader)
    if timestamp == LATEST:
        return (end_offset, NO_TIMESTAMP, partition.leader_epoch) if has_end else None
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return partition.log_start_offset, NO_TIMESTAMP, _epoch_at_start(partition)
    if timestamp == LATEST_TIERED:
        return NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH
    if timestamp == MAX_TIMESTAMP:
        found = await partition.offset_of_max_timestamp(end_offset, turn)
    else:
        found = await partition.offset_for_timestamp(timestamp, end_offset, turn)
    if found is None:
        return (NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH) if has_end else None
    return found.offset, found.timestamp_ms, found.leader_epoch


def _epoch_at_start(partition: Partition) -> int:
    """Of the first record, existing or future: the current epoch has no checkpoint entry until it has a record."""
    if partition.log_start_offset == partition.log_end_offset:
        return partition.leader_epoch
    return partition.epoch_of(partition.log_start_offset)


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(wanted.partition_index, error_code=code)

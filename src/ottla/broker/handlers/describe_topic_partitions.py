"""DescribeTopicPartitions (key 75), v0-v0.  KIP-966.

Topics by name in the order of their names, all of them when none is named, up to as many partitions as the request
and max.request.partition.size.limit allow; then `next_cursor` says where the next request continues.  A cursor
leaves out the topics before its own, and its topic's partitions before its own.  A topic that is named and unknown is
UNKNOWN_TOPIC_OR_PARTITION, an illegal name INVALID_TOPIC_EXCEPTION.  A cursor with a negative partition, or of a topic
that is not among those named, is INVALID_REQUEST for each that was named.  Partitions have the fields of Metadata, and
the eligible leader replicas of the tree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from heapq import merge
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.metadata import partition_entry
from ottla.coordination.topics_view import Topic
from ottla.model.broker_settings import MAX_REQUEST_PARTITION_SIZE_LIMIT
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import INTERNAL_TOPICS, topic_name_problem
from ottla.protocol.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.offload import Offload
from ottla.runtime.steps import parts_of
from ottla.security.acl import TOPIC_OPERATION_BITS

_NAMES_OF_STEP: Final = 1_000


async def handle(
    request: DescribeTopicPartitionsRequest, context: BrokerContext, call: Call
) -> DescribeTopicPartitionsResponse:
    turn = LoopOffload()
    cursor = request.cursor
    if cursor is not None and not _is_sound(cursor, request):
        refused = [_error_entry(name, ErrorCode.INVALID_REQUEST) async for name in _in_turns(request, turn)]
        return DescribeTopicPartitionsResponse(topics=refused)
    response = DescribeTopicPartitionsResponse()
    room = max(min(request.response_partition_limit, context.settings[MAX_REQUEST_PARTITION_SIZE_LIMIT]), 1)
    for name in await _names(request, context, turn):
        await turn.pause()
        if room == 0:
            response.next_cursor = Cursor(name, 0)
            break
        topic = context.topics.by_name.get(name)
        if topic is None:
            problem = topic_name_problem(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if problem is None else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(_error_entry(name, code, TOPIC_OPERATION_BITS))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        entry = _topic_entry(topic, first, room, context)
        response.topics.append(entry)
        room -= len(entry.partitions)
        if first + len(entry.partitions) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(entry.partitions))
            break
    return response


async def _in_turns(request: DescribeTopicPartitionsRequest, turn: Offload) -> AsyncIterator[str]:
    """Each requested name once."""
    seen: set[str] = set()
    for topic in request.topics:
        await turn.pause()
        if topic.name not in seen:
            seen.add(topic.name)
            yield topic.name


async def _names(request: DescribeTopicPartitionsRequest, context: BrokerContext, turn: Offload) -> Iterator[str]:
    """The requested topics, from the cursor's on, sorted a part at a time."""
    names = [name async for name in _in_turns(request, turn)] or list(context.topics.by_name)
    begin = request.cursor.topic_name if request.cursor is not None else ""
    parts: list[list[str]] = []
    for some in parts_of(names, _NAMES_OF_STEP):
        parts.append(sorted(name for name in some if name >= begin))
        await turn.pause()
    return merge(*parts)


def _is_sound(cursor: Cursor, request: DescribeTopicPartitionsRequest) -> bool:
    is_named = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return is_named and cursor.partition_index >= 0


def _topic_entry(topic: Topic, first: int, count: int, context: BrokerContext) -> DescribeTopicPartitionsResponseTopic:
    entry = DescribeTopicPartitionsResponseTopic(ErrorCode.NONE, topic.name, topic.topic_id)
    entry.is_internal, entry.topic_authorized_operations = topic.name in INTERNAL_TOPICS, TOPIC_OPERATION_BITS
    for index in range(first, min(first + count, len(topic.partitions))):
        known = partition_entry(context, topic.name, index, topic.partitions[index])
        entry.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                known.error_code,
                index,
                known.leader_id,
                known.leader_epoch,
                known.replica_nodes,
                known.isr_nodes,
                eligible_leader_replicas=[each.node_id for each in topic.partitions[index].state.eligible],
                last_known_elr=[],
                offline_replicas=known.offline_replicas,
            )
        )
    return entry


def _error_entry(name: str, code: ErrorCode, operations: int | None = None) -> DescribeTopicPartitionsResponseTopic:
    entry = DescribeTopicPartitionsResponseTopic(code, name, is_internal=name in INTERNAL_TOPICS)
    if operations is not None:
        entry.topic_authorized_operations = operations
    return entry

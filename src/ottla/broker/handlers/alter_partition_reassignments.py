"""AlterPartitionReassignments (key 45), v0-v1.

Moves partitions to the given replicas, the preferred leader first; null ends a move.  The answer says that moves have
started; ListPartitionReassignments lists those under way.  Another request for a partition replaces a move under way.

Errors of each partition: UNKNOWN_TOPIC_OR_PARTITION; NO_REASSIGNMENT_IN_PROGRESS for null where none is under way;
INVALID_REPLICA_ASSIGNMENT for no replica, one that is named twice, or a broker that is not registered, and when all
replicas that have the acknowledged records would leave at once; INVALID_REPLICATION_FACTOR for another number of
replicas when the request does not allow it (v1).  The time-out is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.error_text import error_text
from ottla.broker.topics.topic_rules import REPLICAS_MAX
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.steps import parts_of

# A change of the tree each.
_PARTITIONS_OF_TURN: Final = 500


async def handle(
    request: AlterPartitionReassignmentsRequest, context: BrokerContext, call: Call
) -> AlterPartitionReassignmentsResponse:
    may_change_count = request.allow_replication_factor_change
    turn = LoopOffload()
    # As in Apache Kafka a topic that is named several times is answered each time, one after the other.
    responses: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        targets: dict[int, Sequence[int] | None] = {}
        for partition in topic.partitions:
            targets[partition.partition_index] = partition.replicas
            await turn.pause()
        responses.append(await _altered(topic.name, targets, context, may_change_count=may_change_count))
        await turn.pause()
    return AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_count, responses=responses)


async def _altered(
    name: str, targets: Mapping[int, Sequence[int] | None], context: BrokerContext, *, may_change_count: bool
) -> ReassignableTopicResponse:
    turn = LoopOffload()
    there: dict[int, Sequence[int] | None] = {}
    results: dict[int, RequestError | None] = {}
    for index, replicas in targets.items():
        if context.topics.partition(TopicPartition(name, index)) is None:
            results[index] = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        elif replicas is not None and len(replicas) > REPLICAS_MAX:
            problem = f"{len(replicas)} replicas: {REPLICAS_MAX} are taken"
            results[index] = RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        else:
            there[index] = replicas
        await turn.pause()
    for indexes in parts_of(list(there), _PARTITIONS_OF_TURN):
        some = {index: there[index] for index in indexes}
        results |= await _reassigned(name, some, context, may_change_count=may_change_count)
    response = ReassignableTopicResponse(name, [])
    for index in targets:
        response.partitions.append(_response(index, results[index]))
        await turn.pause()
    return response


async def _reassigned(
    name: str, targets: Mapping[int, Sequence[int] | None], context: BrokerContext, *, may_change_count: bool
) -> Mapping[int, RequestError | None]:
    try:
        return await context.topic_admin.reassign(name, targets, may_change_count=may_change_count)
    except RequestError as error:
        return dict.fromkeys(targets, error)
    except OttlaError as error:
        failure = RequestError(error.error_code, str(error))
        return dict.fromkeys(targets, failure)


def _response(index: int, refusal: RequestError | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(index, ErrorCode.NONE, None)
    return ReassignablePartitionResponse(index, refusal.code, error_text(refusal))

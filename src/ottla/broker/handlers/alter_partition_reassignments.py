"""AlterPartitionReassignments (key 45), v0-v1.

Moves partitions to the given replicas, the preferred leader first; null ends a move.  The answer says that moves have
begun; ListPartitionReassignments tells those under way.  Another request for a partition replaces a move under way.

Each partition by itself: UNKNOWN_TOPIC_OR_PARTITION; NO_REASSIGNMENT_IN_PROGRESS for null where none is under way;
INVALID_REPLICA_ASSIGNMENT for no replica, one that is named twice, or a broker that is not registered, and when all
replicas that have the acknowledged records would leave at once; INVALID_REPLICATION_FACTOR for another number of
replicas when the request does not allow it (v1).  The time-out is not used.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.error_text import error_text
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


async def handle(
    request: AlterPartitionReassignmentsRequest, broker: BrokerContext, call: Call
) -> AlterPartitionReassignmentsResponse:
    may_change_count = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_count,
        responses=[await _altered(topic, broker, may_change_count=may_change_count) for topic in request.topics],
    )


async def _altered(
    wanted: ReassignableTopic, broker: BrokerContext, *, may_change_count: bool
) -> ReassignableTopicResponse:  # fmt: skip
    targets = {partition.partition_index: partition.replicas for partition in wanted.partitions}
    try:
        results = await broker.reassign(wanted.name, targets, may_change_count=may_change_count)
    except RequestError as error:
        results = dict.fromkeys(targets, error)
    except OttlaError as error:
        failure = RequestError(error.error_code, str(error))
        results = dict.fromkeys(targets, failure)
    return ReassignableTopicResponse(wanted.name, [_response(index, results[index]) for index in targets])


def _response(index: int, refusal: RequestError | None) -> ReassignablePartitionResponse:
    if refusal is None:
        return ReassignablePartitionResponse(index, ErrorCode.NONE, None)
    return ReassignablePartitionResponse(index, refusal.code, error_text(refusal))

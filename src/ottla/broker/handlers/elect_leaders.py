"""ElectLeaders (key 43), v0-v2.

A preferred election lets the first assigned replica lead if it is in sync, else PREFERRED_LEADER_NOT_AVAILABLE; an
unclean one gives a partition without a leader a live replica whose log can be used, else
ELIGIBLE_LEADERS_NOT_AVAILABLE.  ELECTION_NOT_NEEDED where there is such a leader already: always so on a broker by
itself.  REQUEST_TIMED_OUT when it was not written within the request's time-out.  UNKNOWN_TOPIC_OR_PARTITION for a
partition that does not exist, INVALID_REQUEST for an unknown type.  As in Apache Kafka null requests all partitions,
and gets those with another result than ELECTION_NOT_NEEDED.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.protocol.schemas.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.offload import Offload

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "it has such a leader",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "its first replica is not in sync, or cannot be used",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "none of its replicas is live with a log that can be used",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.REQUEST_TIMED_OUT: "it was not written in time, or its state was changed meanwhile: try again",
}


async def handle(request: ElectLeadersRequest, context: BrokerContext, call: Call) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    turn = LoopOffload()
    wanted = await _wanted(request, context, turn)
    results: dict[str, list[PartitionResult]] = {}
    codes: dict[TopicPartition, ErrorCode] = {}
    there: list[TopicPartition] = []
    for each in wanted:
        await turn.pause()
        if context.topics.partition(each) is None:
            codes[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif context.elections is None:
            codes[each] = _of_sole(context, each)
        else:
            there.append(each)
    if context.elections is not None:
        is_unclean = request.election_type == _UNCLEAN
        found = await context.elections.elect(there, is_unclean=is_unclean, timeout_ms=request.timeout_ms)
        codes.update(zip(there, found, strict=True))
    for each in wanted:
        await turn.pause()
        (name, index), code = each, codes[each]
        if request.topic_partitions is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
            results.setdefault(name, []).append(PartitionResult(index, code, _MESSAGES.get(code)))
    return ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(name, partitions) for name, partitions in results.items()]
    )


async def _wanted(request: ElectLeadersRequest, context: BrokerContext, turn: Offload) -> list[TopicPartition]:
    """Each once, however often it is named."""
    wanted: dict[TopicPartition, None] = {}
    if request.topic_partitions is None:
        for topic, node in context.topics.partitions():
            wanted[TopicPartition(topic.name, node.partition_index)] = None
            await turn.pause()
    for named in request.topic_partitions or ():
        await turn.pause()
        for index in named.partitions:
            wanted[TopicPartition(named.topic, index)] = None
            await turn.pause()
    return list(wanted)


def _of_sole(context: BrokerContext, topic_partition: TopicPartition) -> ErrorCode:
    """On a standalone broker: it leads each partition whose log can be used."""
    is_served = context.partitions.find(*topic_partition) is not None
    return ErrorCode.ELECTION_NOT_NEEDED if is_served else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

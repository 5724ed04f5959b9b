"""ElectLeaders (key 43), v0-v2.

A preferred election lets the first assigned replica lead if it is in sync, else PREFERRED_LEADER_NOT_AVAILABLE; an
unclean one gives a partition without a leader a live replica whose log can be used, else
ELIGIBLE_LEADERS_NOT_AVAILABLE.  ELECTION_NOT_NEEDED where there is such a leader already: always so on a broker by
itself.  REQUEST_TIMED_OUT when it was not written within the request's time-out.  UNKNOWN_TOPIC_OR_PARTITION for a
partition that does not exist, INVALID_REQUEST for an unknown type.  As in Apache Kafka null asks for all partitions,
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

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "it has such a leader",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "its first replica is not in sync, or cannot be used",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "none of its replicas is live with a log that can be used",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.REQUEST_TIMED_OUT: "it was not written in time, or its state was changed meanwhile: try again",
}


async def handle(request: ElectLeadersRequest, broker: BrokerContext, call: Call) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.topic_partitions is None:
        wanted = [TopicPartition(topic.name, node.partition_index) for topic, node in broker.topics.partitions()]
    else:
        wanted = [
            TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
        ]
    results: dict[str, list[PartitionResult]] = {}
    elections = broker.elections
    if elections is None:
        codes = [_of_sole(broker, each) for each in wanted]
    else:
        is_unclean = request.election_type == _UNCLEAN
        codes = await elections.elect(wanted, is_unclean=is_unclean, timeout_ms=request.timeout_ms)
    for (name, index), code in zip(wanted, codes, strict=True):
        if request.topic_partitions is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
            results.setdefault(name, []).append(PartitionResult(index, code, _MESSAGES.get(code)))
    return ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(name, partitions) for name, partitions in results.items()]
    )


def _of_sole(broker: BrokerContext, topic_partition: TopicPartition) -> ErrorCode:
    """On a broker by itself: it leads each partition whose log can be used."""
    if broker.partitions.find(*topic_partition) is not None:
        return ErrorCode.ELECTION_NOT_NEEDED
    if broker.topics.partition(topic_partition) is not None:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

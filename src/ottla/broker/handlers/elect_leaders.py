"""ElectLeaders (key 43), v0-v2.

Each partition has one replica, its preferred leader, which leads it while the broker runs: a partition that is served
gets ELECTION_NOT_NEEDED, whatever the type of the election.  UNKNOWN_TOPIC_OR_PARTITION for one that
does not exist, INVALID_REQUEST for an unknown type.  As in Apache Kafka null asks for all and gets only partitions
with another error than ELECTION_NOT_NEEDED: none.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def handle(request: ElectLeadersRequest, broker: BrokerContext, call: Call) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted = request.topic_partitions or []
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic.topic, [_result(broker, topic.topic, index) for index in topic.partitions])
            for topic in wanted
        ]
    )


def _result(broker: BrokerContext, topic_name: str, index: int) -> PartitionResult:
    if broker.partitions.find(topic_name, index) is not None:
        return PartitionResult(index, ErrorCode.ELECTION_NOT_NEEDED, "its only replica leads it")
    topic = broker.topics.by_name.get(topic_name)
    if topic is not None and 0 <= index < len(topic.partitions):
        return PartitionResult(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "its only replica is out of use")
    return PartitionResult(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic_name}-{index}")

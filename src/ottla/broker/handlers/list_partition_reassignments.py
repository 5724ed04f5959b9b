"""ListPartitionReassignments (key 46), v0-v0.

The partitions whose replicas are being moved: all replicas, those of before and after, and which of them are being
added and removed.  Null asks for all topics.  Partitions that are not being moved, or do not exist, are left out, as in
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.context import BrokerContext, Call
from ottla.coordination.topics_view import Topic
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


async def handle(
    request: ListPartitionReassignmentsRequest, broker: BrokerContext, call: Call
) -> ListPartitionReassignmentsResponse:
    by_name = broker.topics.by_name
    if request.topics is None:
        asked = [(topic, range(len(topic.partitions))) for topic in by_name.values()]
        found = [_moving(topic, indexes) for topic, indexes in asked]
    else:
        found = [_moving(by_name[each.name], each.partition_indexes) for each in request.topics if each.name in by_name]
    return ListPartitionReassignmentsResponse(topics=[topic for topic in found if topic.partitions])


def _moving(topic: Topic, indexes: Collection[int]) -> OngoingTopicReassignment:
    partitions = [topic.partitions[index] for index in indexes if 0 <= index < len(topic.partitions)]
    return OngoingTopicReassignment(
        topic.name,
        [
            OngoingPartitionReassignment(
                each.partition_index, list(each.replicas), list(each.move.adding), list(each.move.removing)
            )
            for each in partitions
            if each.is_moving
        ],
    )

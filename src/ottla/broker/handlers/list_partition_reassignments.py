"""ListPartitionReassignments (key 46), v0-v0.

The partitions whose replicas are being moved: all replicas, those of before and after, and which of them are being
added and removed.  Null asks for all topics.  Partitions that are not being moved, or do not exist, are left out, as in
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.context import BrokerContext, Call
from ottla.coordination.topics_view import Topic
from ottla.protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.runtime.loop_offload import LoopOffload


async def handle(
    request: ListPartitionReassignmentsRequest, context: BrokerContext, call: Call
) -> ListPartitionReassignmentsResponse:
    by_name = context.topics.by_name
    turn = LoopOffload()
    named: dict[str, dict[int, None]] = {}
    for each in request.topics or ():
        await turn.pause()
        if each.name in by_name:
            # Each partition once, however often it is named.
            named.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    found: list[OngoingTopicReassignment] = []
    for name in by_name if request.topics is None else named:
        await turn.pause()
        topic = by_name[name]
        moving = _moving(topic, range(len(topic.partitions)) if request.topics is None else named[name])
        if moving.partitions:
            found.append(moving)
    return ListPartitionReassignmentsResponse(topics=found)


def _moving(topic: Topic, indexes: Iterable[int]) -> OngoingTopicReassignment:
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

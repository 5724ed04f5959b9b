"""OffsetForLeaderEpoch (key 23), v2-v4.

Answers the greatest known leader epoch that is not above the asked one, and its end offset: the start of the next
epoch, or the log end for the current one.  An epoch that was never known is answered with (-1, -1) and no error.
Consumers that find their position above the end offset have detected a truncation (KIP-320).
A replica is answered as a consumer is: the replica id only matters to Apache Kafka's access rules.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.partition_lookup import find_partition
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.runtime.loop_offload import LoopOffload


async def handle(
    request: OffsetForLeaderEpochRequest, context: BrokerContext, call: Call
) -> OffsetForLeaderEpochResponse:
    turn = LoopOffload()
    results: dict[str, OffsetForLeaderTopicResult] = {}
    for topic in request.topics:
        await turn.pause()
        result = results.setdefault(topic.topic, OffsetForLeaderTopicResult(topic.topic))
        for each in topic.partitions:
            await turn.pause()
            result.partitions.append(_answer(context, topic.topic, each))
    return OffsetForLeaderEpochResponse(topics=list(results.values()))


def _answer(context: BrokerContext, topic_name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = find_partition(context, topic_name, wanted.partition, wanted.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(partition, wanted.partition)
    return EpochEndOffset(ErrorCode.NONE, wanted.partition, *partition.epoch_end_offset(wanted.leader_epoch))

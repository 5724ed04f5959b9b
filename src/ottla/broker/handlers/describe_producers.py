"""DescribeProducers (key 61), v0-v0.

Answers the producers that the leader of a partition remembers, and their open transactions.  Tools find by it the
transactions that no coordinator will end (KIP-664).  Only idempotent producers are remembered, for
`producer.id.expiration.ms` after their last batch, and longer while a transaction is open.  A partition that is named
twice is answered once.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.partition_lookup import find_partition
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.steps import parts_of

_PRODUCERS_OF_STEP = 256
# That of a producer of which only markers are known.
_NO_SEQUENCE = -1


async def handle(request: DescribeProducersRequest, context: BrokerContext, call: Call) -> DescribeProducersResponse:
    turn = LoopOffload()
    named: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        await turn.pause()
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in named.items():
        partitions = []
        for index in indexes:
            await turn.pause()
            partitions.append(await _describe(context, name, index, turn))
        topics.append(DescribeProducersTopicResponse(name, partitions))
    return DescribeProducersResponse(topics=topics)


async def _describe(
    context: BrokerContext, topic_name: str, index: int, turn: LoopOffload
) -> DescribeProducersPartitionResponse:
    partition = find_partition(context, topic_name, index)
    if isinstance(partition, ErrorCode):
        return DescribeProducersPartitionResponse(index, partition)
    found: list[ProducerState] = []
    for some in parts_of(partition.producers(), _PRODUCERS_OF_STEP):
        found += [
            ProducerState(
                producer_id,
                entry.epoch,
                entry.batches[-1][1] if entry.batches else _NO_SEQUENCE,
                entry.last_active_ms,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for producer_id, entry in some
        ]
        await turn.pause()
    return DescribeProducersPartitionResponse(index, active_producers=found)

"""AddOffsetsToTxn (key 25), v0-v4.

Adds the partition of `__consumer_offsets` that the group has, as AddPartitionsToTxn does any other.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.internal_topic_creation import create_internal_topic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TopicPartition
from ottla.protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.runtime.waiting_reply import reply_of
from ottla.transactions.commands import AddPartitions

_FENCED_FROM_VERSION: Final = 2


async def handle(request: AddOffsetsToTxnRequest, context: BrokerContext, call: Call) -> AddOffsetsToTxnResponse:
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        await create_internal_topic(context, OFFSETS_TOPIC)
    except OttlaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    count = len(context.topics.by_name[OFFSETS_TOPIC].partitions)
    command = AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset([TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, count))]),
        knows_fenced=call.api_version >= _FENCED_FROM_VERSION,
        connection=call.connection_number,
    )
    error: ErrorCode = await reply_of(lambda reply: context.transactions.submit(command, reply))
    return AddOffsetsToTxnResponse(error_code=error)

"""DeleteRecords (key 21), v0-v2.

Moves a partition's log start up to an offset; -1 is the high watermark.  Answers the low watermark, the least log start
of the live replicas, when all of them have moved theirs; it is durable at the leader then.  REQUEST_TIMED_OUT when one
has not within the request's time-out; the others keep their new start.  An offset above the high watermark or below -1
is OFFSET_OUT_OF_RANGE; one below the log start changes nothing.  Topics whose cleanup.policy lacks `delete` get
POLICY_VIOLATION, internal topics INVALID_TOPIC_EXCEPTION.  Retention deletes the files in its next round.
"""

from __future__ import annotations

import asyncio

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.partition_lookup import find_partition
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import INTERNAL_TOPICS, NO_OFFSET
from ottla.model.settings import TopicSettings
from ottla.model.topic_settings import CLEANUP_POLICY
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)


async def handle(request: DeleteRecordsRequest, broker: BrokerContext, call: Call) -> DeleteRecordsResponse:
    found = await asyncio.gather(*(_topic_result(broker, topic, request.timeout_ms) for topic in request.topics))
    return DeleteRecordsResponse(topics=found)


async def _topic_result(broker: BrokerContext, topic: DeleteRecordsTopic, timeout_ms: int) -> DeleteRecordsTopicResult:
    refusal = _topic_refusal(broker, topic.name)
    # All at once: they wait for followers together.
    found = await asyncio.gather(
        *(_partition_result(broker, topic.name, wanted, timeout_ms, refusal) for wanted in topic.partitions)
    )
    return DeleteRecordsTopicResult(topic.name, found)


def _topic_refusal(broker: BrokerContext, topic_name: str) -> ErrorCode | None:
    if topic_name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    settings = TopicSettings(broker.configs.topic(topic_name), broker.settings)
    return None if "delete" in settings[CLEANUP_POLICY] else ErrorCode.POLICY_VIOLATION


async def _partition_result(
    broker: BrokerContext, topic_name: str, wanted: DeleteRecordsPartition, timeout_ms: int, refusal: ErrorCode | None
) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    partition = find_partition(broker, topic_name, index)
    if isinstance(partition, ErrorCode):
        return DeleteRecordsPartitionResult(index, NO_OFFSET, partition)
    if refusal is not None:
        return DeleteRecordsPartitionResult(index, NO_OFFSET, refusal)
    try:
        low_watermark = await broker.delete_records(topic_name, index, wanted.offset, timeout_ms)
        return DeleteRecordsPartitionResult(index, low_watermark)
    except RequestError as error:
        return DeleteRecordsPartitionResult(index, NO_OFFSET, error.code)
    except OttlaError as error:
        return DeleteRecordsPartitionResult(index, NO_OFFSET, error.error_code)

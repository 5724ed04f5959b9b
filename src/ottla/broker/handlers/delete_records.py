"""DeleteRecords (key 21), v0-v2.

Moves a partition's log start up to an offset; -1 is the high watermark.  Answers the low watermark, the least log start
of the live replicas, when all of them have moved theirs; it is durable at the leader then.  REQUEST_TIMED_OUT when one
has not within the request's time-out; the others keep their new start.  An offset above the high watermark or below -1
is OFFSET_OUT_OF_RANGE; one below the log start changes nothing.  Topics whose cleanup.policy lacks `delete` get
POLICY_VIOLATION, internal topics INVALID_TOPIC_EXCEPTION.  Retention deletes the files in its next round.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.partition_lookup import find_partition
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import INTERNAL_TOPICS, NO_OFFSET, TopicPartition
from ottla.model.settings import TopicSettings
from ottla.model.topic_settings import CLEANUP_POLICY
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.runtime.loop_offload import LoopOffload


async def handle(request: DeleteRecordsRequest, context: BrokerContext, call: Call) -> DeleteRecordsResponse:
    turn = LoopOffload()
    # A partition that is named several times is answered once, and the last of its offsets holds, as in Apache Kafka.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        for each in topic.partitions:
            offsets[each.partition_index] = each.offset
            await turn.pause()
        await turn.pause()
    refused: dict[TopicPartition, ErrorCode] = {}
    before: dict[TopicPartition, int] = {}
    for name, offsets in wanted.items():
        refusal = _topic_refusal(context, name)
        for index, offset in offsets.items():
            partition = find_partition(context, name, index)
            if isinstance(partition, ErrorCode):
                refused[TopicPartition(name, index)] = partition
            elif refusal is not None:
                refused[TopicPartition(name, index)] = refusal
            else:
                before[TopicPartition(name, index)] = offset
            await turn.pause()
    # All at once: they share a checkpoint, and wait for followers together.
    found = await context.record_deletions.delete(before, request.timeout_ms) if before else {}
    topics: list[DeleteRecordsTopicResult] = []
    for name, offsets in wanted.items():
        results: list[DeleteRecordsPartitionResult] = []
        topics.append(DeleteRecordsTopicResult(name, results))
        for index in offsets:
            key = TopicPartition(name, index)
            results.append(_result(index, refused[key] if key in refused else found[key]))
            await turn.pause()
    return DeleteRecordsResponse(topics=topics)


def _topic_refusal(context: BrokerContext, topic_name: str) -> ErrorCode | None:
    if topic_name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if topic_name not in context.topics.by_name:
        return None  # none of its partitions is found
    settings = TopicSettings(context.configs.topic(topic_name), context.settings)
    return None if "delete" in settings[CLEANUP_POLICY] else ErrorCode.POLICY_VIOLATION


def _result(index: int, outcome: int | OttlaError | ErrorCode) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, ErrorCode):
        return DeleteRecordsPartitionResult(index, NO_OFFSET, outcome)
    if isinstance(outcome, OttlaError):
        code = outcome.code if isinstance(outcome, RequestError) else outcome.error_code
        return DeleteRecordsPartitionResult(index, NO_OFFSET, code)
    return DeleteRecordsPartitionResult(index, outcome)

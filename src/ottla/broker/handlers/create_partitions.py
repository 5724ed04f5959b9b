"""CreatePartitions (key 37), v0-v3.

A topic's partitions are added until there are `count`; they are served when the answer is sent.  Errors of each topic:
UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS when it has as many or more, or would have too many;
INVALID_REPLICA_ASSIGNMENT when the assignments are not one for each added partition, or name another broker;
INVALID_REQUEST, answered once, for a topic that occurs twice; INVALID_TOPIC_EXCEPTION for internal topics, whose count
groups depend on.  KAFKA_STORAGE_ERROR: they are added, and served once their logs can be created.  `validate_only` adds
nothing.  POLICY_VIOLATION: more than max.broker.partitions or the limit of open files allow.  THROTTLING_QUOTA_EXCEEDED
from v3 on when the client has used up its controller_mutation_rate; before, it is throttled.  The time-out is not used.

Errors of the tree: see handlers/create_topics.py.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import BrokerContext, Call, count_mutations, require_mutations
from ottla.broker.handlers.error_text import error_text
from ottla.broker.topics.topic_rules import topics_by_name
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.runtime.loop_offload import LoopOffload

# With controller_mutation_rate: older clients do not know the error, and are throttled.
_STRICT_FROM_VERSION: Final = 3


async def handle(request: CreatePartitionsRequest, context: BrokerContext, call: Call) -> CreatePartitionsResponse:
    turn = LoopOffload()
    results: list[CreatePartitionsTopicResult] = []
    named, named_twice = await topics_by_name(request.topics, turn)
    for name, topic in named.items():
        await turn.pause()
        if name in named_twice:
            text = "the topic is named twice in the request"
            results.append(CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, text))
        else:
            results.append(await _add(topic, context, call, validate_only=request.validate_only))
    return CreatePartitionsResponse(results=results)


async def _add(
    wanted: CreatePartitionsTopic, context: BrokerContext, call: Call, *, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignment = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
    before = context.topics.by_name.get(wanted.name)
    try:
        if not validate_only:
            require_mutations(call, _STRICT_FROM_VERSION)
        await context.topic_admin.add_partitions(wanted.name, wanted.count, assignment, validate_only=validate_only)
        if not validate_only and before is not None:
            count_mutations(call, max(wanted.count - len(before.partitions), 0), _STRICT_FROM_VERSION)
    except OttlaError as error:
        return CreatePartitionsTopicResult(wanted.name, error.error_code, error_text(error))
    return CreatePartitionsTopicResult(wanted.name)

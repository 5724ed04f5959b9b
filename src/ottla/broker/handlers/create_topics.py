"""CreateTopics (key 19), v2-v7.

Each topic separately: partitions and replication factor -1 are the broker's defaults, or an assignment of replicas is
given.  Errors: INVALID_TOPIC_EXCEPTION for an illegal name or one that differs from another only in '.' and '_',
TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR (not positive, or above the live brokers),
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG (unknown setting, bad value, or none).  A name that occurs twice in a request
is INVALID_REQUEST, answered once; more than 10,000 partitions in one request are POLICY_VIOLATION.  `validate_only`
creates nothing and answers the topic id of zeros.  From v5 on the answer has partition count, replication factor and
all settings (KIP-525).  A topic is served when the answer is sent; the time-out is not used. When its logs cannot be
created for want of disk space or descriptors the answer is KAFKA_STORAGE_ERROR: the topic is in the tree then, and is
served without another request once they can be created; one that requests it again gets its completion, not
TOPIC_ALREADY_EXISTS.  What the broker's next start would refuse (max.broker.partitions, the limit of open files) is
POLICY_VIOLATION.  While this broker has no session with the tree the answer is NOT_CONTROLLER, after which clients ask
again; where an outcome is unknown, REQUEST_TIMED_OUT.  When the client has used up its controller_mutation_rate,
THROTTLING_QUOTA_EXCEEDED from v6 on; before, it is throttled (KIP-599).

Departure: `__consumer_offsets` made by hand is compacted unless the request says otherwise.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import BrokerContext, Call, NewTopic, count_mutations, require_mutations
from ottla.broker.handlers.config_resources import require_few_settings
from ottla.broker.handlers.error_text import error_text
from ottla.broker.shards.internal_topics import internal_topic_config
from ottla.broker.topics.topic_rules import topics_by_name
from ottla.model.broker_settings import NUM_PARTITIONS
from ottla.model.config_entries import describe_topic
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import INTERNAL_TOPICS
from ottla.protocol.schemas.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.runtime.loop_offload import LoopOffload

# As in Apache Kafka: what one request may create.
PARTITIONS_OF_REQUEST_MAX: Final = 10_000
_DEFAULT: Final = -1
# With controller_mutation_rate: older clients do not know the error, and are throttled.
_STRICT_FROM_VERSION: Final = 6


async def handle(request: CreateTopicsRequest, context: BrokerContext, call: Call) -> CreateTopicsResponse:
    turn = LoopOffload()
    named, named_twice = await topics_by_name(request.topics, turn)
    partitions_count = 0
    for topic in request.topics:
        partitions_count += _partitions_count(topic, context)
        await turn.pause()
    results: list[CreatableTopicResult] = []
    for name, topic in named.items():
        await turn.pause()
        if partitions_count > PARTITIONS_OF_REQUEST_MAX:
            problem = f"one request may make {PARTITIONS_OF_REQUEST_MAX} partitions at most"
            results.append(_refused(name, ErrorCode.POLICY_VIOLATION, problem))
        elif name in named_twice:
            results.append(_refused(name, ErrorCode.INVALID_REQUEST, "the topic is named twice in the request"))
        else:
            results.append(await _create(topic, context, call, validate_only=request.validate_only))
    return CreateTopicsResponse(topics=results)


async def _create(
    wanted: CreatableTopic, context: BrokerContext, call: Call, *, validate_only: bool
) -> CreatableTopicResult:
    try:
        new = _new_topic(wanted, context)
        if not validate_only:
            require_mutations(call, _STRICT_FROM_VERSION)
        topic = await context.topic_admin.create(new, validate_only=validate_only)
        if not validate_only:
            count_mutations(call, len(topic.partitions), _STRICT_FROM_VERSION)
    except OttlaError as error:
        return _refused(wanted.name, error.error_code, error_text(error))
    overrides = {name: value for name, value in new.config.items() if value is not None}
    return CreatableTopicResult(
        topic.name,
        topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(entry.name, entry.value, entry.is_read_only, entry.source, entry.is_sensitive)
            for entry in describe_topic(overrides, context.settings)
        ],
    )


def _new_topic(wanted: CreatableTopic, context: BrokerContext) -> NewTopic:
    require_few_settings(len(wanted.configs))
    assignment = {each.partition_index: each.broker_ids for each in wanted.assignments}
    if len(assignment) != len(wanted.assignments):
        raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    config = {each.name: each.value for each in wanted.configs}  # the last one holds, as in Apache Kafka
    if wanted.name in INTERNAL_TOPICS:
        # Retention would delete committed offsets and decisions: what is not given is as when the broker makes it.
        config = {**internal_topic_config(wanted.name, context.settings), **config}
    return NewTopic(wanted.name, wanted.num_partitions, wanted.replication_factor, assignment or None, config)


def _partitions_count(wanted: CreatableTopic, context: BrokerContext) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return context.settings[NUM_PARTITIONS] if wanted.num_partitions == _DEFAULT else max(wanted.num_partitions, 0)


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name, error_code=code, error_message=message, configs=[])

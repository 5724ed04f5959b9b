"""Requests about topics: metadata, offsets, creation, deletion."""

from __future__ import annotations

from ottla.broker.authorization.guard import (
    MESSAGES,
    TOPIC_DENIED,
    Caller,
    Outcome,
    Passed,
    Refused,
    adding_topics,
    divided,
    refused_topics,
)
from ottla.broker.context import BrokerContext
from ottla.model.broker_settings import AUTO_CREATE_TOPICS_ENABLE
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.schemas.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopicResult,
)
from ottla.protocol.schemas.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.schemas.describe_producers import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersTopicResponse,
)
from ottla.protocol.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopicResponse,
)
from ottla.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopicResult,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import CLUSTER_NAME, CLUSTER_OPERATIONS, TOPIC_OPERATIONS, Operation, ResourceType

_IDS_FROM_VERSION = 12
_CONSUMER = -1
_MESSAGE = MESSAGES[TOPIC_DENIED]


def metadata(request: MetadataRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on each topic: those that are named are refused, of all topics the others are left out.

    A topic that would be created needs CREATE, on the cluster or on the topic.
    """
    is_all = request.topics is None or (caller.api_version == 0 and not request.topics)
    passed: list[MetadataRequestTopic] = []
    denied: dict[object, MetadataResponseTopic] = {}
    if not is_all:
        for wanted in request.topics or ():
            refusal = _metadata_refusal(wanted, request, caller, context)
            if refusal is None:
                passed.append(wanted)
            else:
                denied[wanted.name, wanted.topic_id] = refusal
            yield
        # An empty list of v0 is all topics: they are dropped from the response.
        request.topics = passed

    def finish(response: MetadataResponse) -> Steps[None]:
        if is_all:
            response.topics, _ = yield from divided(
                response.topics, lambda topic: caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name or "")
            )
        elif not passed:
            response.topics = []
        if request.include_topic_authorized_operations:
            for topic in response.topics:
                if topic.name is not None:
                    topic.topic_authorized_operations = caller.operations(
                        TOPIC_OPERATIONS, ResourceType.TOPIC, topic.name
                    )
                yield
        response.topics += denied.values()
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(caller)

    return Passed(request, finish)


def cluster_operations(caller: Caller) -> int:
    """As in Apache Kafka none are shown without DESCRIBE."""
    if not caller.sees_cluster(Operation.DESCRIBE):
        return 0
    return caller.operations(CLUSTER_OPERATIONS, ResourceType.CLUSTER, CLUSTER_NAME)


def _metadata_refusal(
    wanted: MetadataRequestTopic, request: MetadataRequest, caller: Caller, context: BrokerContext
) -> MetadataResponseTopic | None:
    name = wanted.name
    if caller.api_version < _IDS_FROM_VERSION and (name is None or wanted.topic_id != ZERO_UUID):
        return None  # the request is invalid
    if wanted.topic_id != ZERO_UUID:
        known = context.topics.by_id.get(wanted.topic_id)
        if known is None or caller.allows_topic(Operation.DESCRIBE, known.name):
            return None
        return MetadataResponseTopic(TOPIC_DENIED, None, wanted.topic_id)
    if name is None:
        return None
    if not caller.allows_topic(Operation.DESCRIBE, name):
        return MetadataResponseTopic(TOPIC_DENIED, name)
    would_create = (
        request.allow_auto_topic_creation
        and context.settings[AUTO_CREATE_TOPICS_ENABLE]
        and name not in context.topics.by_name
    )
    if would_create and not _may_create(caller, name):
        return MetadataResponseTopic(TOPIC_DENIED, name)
    return None


def _may_create(caller: Caller, name: str) -> bool:
    return caller.sees_cluster(Operation.CREATE) or caller.allows_topic(Operation.CREATE, name)


def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, caller: Caller, context: BrokerContext
) -> Steps[Outcome]:
    """DESCRIBE on each topic: those that are named are refused, of all topics the others are left out."""
    denied: list[TopicRequest] = []
    if request.topics:
        passed, denied = yield from divided(
            request.topics, lambda topic: caller.allows_topic(Operation.DESCRIBE, topic.name)
        )
    else:
        # Taken out of the response, they would show in its cursor and its size.
        passed = yield from _visible_topics(request, caller, context)
    refused = [DescribeTopicPartitionsResponseTopic(TOPIC_DENIED, name) for name in _names(denied)]
    if not passed:
        return Refused(DescribeTopicPartitionsResponse(topics=refused))
    request.topics = passed

    def finish(response: DescribeTopicPartitionsResponse) -> Steps[None]:
        for topic in response.topics:
            if topic.error_code != ErrorCode.INVALID_REQUEST:
                topic.topic_authorized_operations = caller.operations(
                    TOPIC_OPERATIONS, ResourceType.TOPIC, topic.name or ""
                )
            yield
        response.topics = [*refused, *response.topics]

    return Passed(request, finish)


def _visible_topics(
    request: DescribeTopicPartitionsRequest, caller: Caller, context: BrokerContext
) -> Steps[list[TopicRequest]]:
    first = "" if request.cursor is None else request.cursor.topic_name
    names: list[str] = []
    for name in context.topics.by_name:
        if name >= first and caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, name):
            names.append(name)
        yield
    if request.cursor is not None and names and first not in names:
        # Its topic was deleted, or may not be described any more: continue with the next one.
        request.cursor = Cursor(min(names), 0)
    return [TopicRequest(name) for name in names]


def list_offsets(request: ListOffsetsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on each topic; as a replica CLUSTER_ACTION on the cluster, else the answer is a consumer's."""
    if request.replica_id != _CONSUMER and not caller.sees_cluster(Operation.CLUSTER_ACTION):
        # The broker id is only a claim: it would show the end of the log beyond the high watermark.
        request.replica_id = _CONSUMER
    passed, denied = yield from divided(
        request.topics, lambda topic: caller.allows_topic(Operation.DESCRIBE, topic.name)
    )
    refused = yield from refused_topics(
        denied,
        lambda topic: topic.partitions,
        lambda each: ListOffsetsPartitionResponse(each.partition_index, TOPIC_DENIED),
        lambda topic, results: ListOffsetsTopicResponse(topic.name, results),
    )
    request.topics = passed
    return Passed(request, adding_topics(refused))


def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, caller: Caller, context: BrokerContext
) -> Steps[Outcome]:
    """DESCRIBE on each topic, or CLUSTER_ACTION on the cluster."""
    if caller.sees_cluster(Operation.CLUSTER_ACTION):
        return Passed(request)
    passed, denied = yield from divided(
        request.topics, lambda topic: caller.allows_topic(Operation.DESCRIBE, topic.topic)
    )
    refused = yield from refused_topics(
        denied,
        lambda topic: topic.partitions,
        lambda each: EpochEndOffset(TOPIC_DENIED, each.partition),
        lambda topic, results: OffsetForLeaderTopicResult(topic.topic, results),
    )
    request.topics = passed
    return Passed(request, adding_topics(refused))


def describe_producers(request: DescribeProducersRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """READ on each topic."""
    passed, denied = yield from divided(request.topics, lambda topic: caller.allows_topic(Operation.READ, topic.name))
    refused = yield from refused_topics(
        denied,
        lambda topic: topic.partition_indexes,
        lambda index: DescribeProducersPartitionResponse(index, TOPIC_DENIED),
        lambda topic, results: DescribeProducersTopicResponse(topic.name, results),
    )
    request.topics = passed
    return Passed(request, adding_topics(refused))


def create_topics(request: CreateTopicsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """CREATE on the cluster or on the topic; the answer shows settings with DESCRIBE_CONFIGS on it."""
    may_create_any = caller.sees_cluster(Operation.CREATE)
    passed, denied = yield from divided(
        request.topics, lambda topic: may_create_any or caller.allows_topic(Operation.CREATE, topic.name)
    )
    request.topics = passed

    def finish(response: CreateTopicsResponse) -> Steps[None]:
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE and not caller.sees(
                Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name
            ):
                topic.configs, topic.topic_config_error_code = [], TOPIC_DENIED
                topic.num_partitions = topic.replication_factor = -1
            yield
        for name in dict.fromkeys(topic.name for topic in denied):
            response.topics.append(
                CreatableTopicResult(name, error_code=TOPIC_DENIED, error_message=_MESSAGE, configs=[])
            )
            yield

    return Passed(request, finish)


def delete_topics(request: DeleteTopicsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DELETE on each topic; one that is given by its id shows its name to those who may describe it."""
    refused: list[DeletableTopicResult] = []

    def is_allowed(wanted: DeleteTopicState) -> bool:
        if wanted.topic_id == ZERO_UUID:
            if wanted.name is None or caller.allows_topic(Operation.DELETE, wanted.name):
                return True
            refused.append(DeletableTopicResult(wanted.name, ZERO_UUID, TOPIC_DENIED, _MESSAGE))
            return False
        known = context.topics.by_id.get(wanted.topic_id)
        if known is None or wanted.name is not None or caller.allows_topic(Operation.DELETE, known.name):
            return True
        is_seen = caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, known.name)
        refused.append(DeletableTopicResult(known.name if is_seen else None, wanted.topic_id, TOPIC_DENIED, _MESSAGE))
        return False

    request.topics, _ = yield from divided(request.topics, is_allowed)
    named, _ = yield from divided(request.topic_names, lambda name: is_allowed(DeleteTopicState(name, ZERO_UUID)))
    request.topic_names = named

    def finish(response: DeleteTopicsResponse) -> Steps[None]:
        yield
        response.responses += refused

    return Passed(request, finish)


def delete_records(request: DeleteRecordsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DELETE on each topic."""
    passed, denied = yield from divided(request.topics, lambda topic: caller.allows_topic(Operation.DELETE, topic.name))
    refused = yield from refused_topics(
        denied,
        lambda topic: topic.partitions,
        lambda each: DeleteRecordsPartitionResult(each.partition_index, NO_OFFSET, TOPIC_DENIED),
        lambda topic, results: DeleteRecordsTopicResult(topic.name, results),
    )
    request.topics = passed
    return Passed(request, adding_topics(refused))


def create_partitions(request: CreatePartitionsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """ALTER on each topic."""
    passed, denied = yield from divided(request.topics, lambda topic: caller.allows_topic(Operation.ALTER, topic.name))
    request.topics = passed
    names = dict.fromkeys(topic.name for topic in denied)

    def finish(response: CreatePartitionsResponse) -> Steps[None]:
        for name in names:
            response.results.append(CreatePartitionsTopicResult(name, TOPIC_DENIED, _MESSAGE))
            yield

    return Passed(request, finish)


def _names(topics: list[TopicRequest]) -> list[str]:
    return list(dict.fromkeys(topic.name for topic in topics))

"""Requests about groups: their members, committed offsets, coordinators and descriptions."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.authorization.guard import (
    GROUP_DENIED,
    ID_DENIED,
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
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import NO_OFFSET
from ottla.protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedMember,
)
from ottla.protocol.schemas.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.schemas.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.schemas.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import GROUP_OPERATIONS, Operation, ResourceType

_GROUP_KEY = 0
_TRANSACTION_KEY = 1
_MANY_COORDINATORS_FROM = 4
_MANY_GROUPS_FROM = 8
_TOP_LEVEL_ERROR_FROM = 2
_NO_NODE = -1


def find_coordinator(request: FindCoordinatorRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on each group, or transactional id."""
    types = {
        _GROUP_KEY: (ResourceType.GROUP, GROUP_DENIED),
        _TRANSACTION_KEY: (ResourceType.TRANSACTIONAL_ID, ID_DENIED),
    }
    if request.key_type not in types:
        return Passed(request)
    resource_type, code = types[request.key_type]
    message = MESSAGES[code]
    if caller.api_version < _MANY_COORDINATORS_FROM:
        if caller.allows(Operation.DESCRIBE, resource_type, request.key):
            return Passed(request)
        return Refused(FindCoordinatorResponse(error_code=code, error_message=message, node_id=_NO_NODE, port=_NO_NODE))
    passed, denied = yield from divided(
        request.coordinator_keys, lambda key: caller.allows(Operation.DESCRIBE, resource_type, key)
    )
    refused = [Coordinator(key, _NO_NODE, "", _NO_NODE, code, message) for key in dict.fromkeys(denied)]
    if not passed:
        return Refused(FindCoordinatorResponse(coordinators=refused))
    request.coordinator_keys = passed

    def finish(response: FindCoordinatorResponse) -> Steps[None]:
        yield
        response.coordinators += refused

    return Passed(request, finish)


def offset_commit(request: OffsetCommitRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """READ on the group, and on each topic."""
    if not caller.allows_group(Operation.READ, request.group_id):
        refused = yield from _uncommitted(request.topics, GROUP_DENIED)
        return Refused(OffsetCommitResponse(topics=refused))
    passed, denied = yield from divided(request.topics, lambda topic: caller.allows_topic(Operation.READ, topic.name))
    refused = yield from _uncommitted(denied, TOPIC_DENIED)
    if not passed:
        return Refused(OffsetCommitResponse(topics=refused))
    request.topics = passed
    return Passed(request, adding_topics(refused))


def txn_offset_commit(request: TxnOffsetCommitRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """WRITE on the transactional id, READ on the group and on each topic."""
    code = None
    if not caller.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        code = ID_DENIED
    elif not caller.allows_group(Operation.READ, request.group_id):
        code = GROUP_DENIED
    if code is not None:
        refused = yield from _uncommitted_in_transaction(request.topics, code)
        return Refused(TxnOffsetCommitResponse(topics=refused))
    passed, denied = yield from divided(request.topics, lambda topic: caller.allows_topic(Operation.READ, topic.name))
    refused = yield from _uncommitted_in_transaction(denied, TOPIC_DENIED)
    if not passed:
        return Refused(TxnOffsetCommitResponse(topics=refused))
    request.topics = passed
    return Passed(request, adding_topics(refused))


def _uncommitted_in_transaction(
    topics: Iterable[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> Steps[list[TxnOffsetCommitResponseTopic]]:
    return refused_topics(
        topics,
        lambda topic: topic.partitions,
        lambda each: TxnOffsetCommitResponsePartition(each.partition_index, code),
        lambda topic, results: TxnOffsetCommitResponseTopic(topic.name, results),
    )


def _uncommitted(topics: Iterable[OffsetCommitRequestTopic], code: ErrorCode) -> Steps[list[OffsetCommitResponseTopic]]:
    return refused_topics(
        topics,
        lambda topic: topic.partitions,
        lambda each: OffsetCommitResponsePartition(each.partition_index, code),
        lambda topic, results: OffsetCommitResponseTopic(topic.name, results),
    )


def offset_fetch(request: OffsetFetchRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on each group and topic: topics that are named are refused, of all topics the others are left out."""
    if caller.api_version < _MANY_GROUPS_FROM:
        return (yield from _offset_fetch_of_one(request, caller))
    refused: list[OffsetFetchResponseGroup] = []
    passed: list[OffsetFetchRequestGroup] = []
    # None: all topics.
    denied: dict[str, list[OffsetFetchResponseTopic] | None] = {}
    for group in request.groups:
        if not caller.allows_group(Operation.DESCRIBE, group.group_id):
            refused.append(OffsetFetchResponseGroup(group.group_id, [], GROUP_DENIED))
        else:
            if group.topics is None:
                denied[group.group_id] = None
            else:
                group.topics, denied[group.group_id] = yield from _named_topics(group.topics, caller)
            passed.append(group)
        yield
    request.groups = passed

    def finish(response: OffsetFetchResponse) -> Steps[None]:
        for group in response.groups:
            # An error of the whole group is not one of its topics.
            if not group.error_code:
                group.topics = yield from _completed(group.topics, denied.get(group.group_id), caller)
            yield
        response.groups += refused

    return Passed(request, finish)


def _offset_fetch_of_one(request: OffsetFetchRequest, caller: Caller) -> Steps[Outcome]:
    if not caller.allows_group(Operation.DESCRIBE, request.group_id):
        if caller.api_version >= _TOP_LEVEL_ERROR_FROM:
            return Refused(OffsetFetchResponse(error_code=GROUP_DENIED))
        refused = yield from _unfetched(request.topics or (), GROUP_DENIED)
        return Refused(OffsetFetchResponse(topics=refused))
    denied: list[OffsetFetchResponseTopic] | None = None
    if request.topics is not None:
        request.topics, denied = yield from _named_topics(request.topics, caller)

    def finish(response: OffsetFetchResponse) -> Steps[None]:
        if not response.error_code:
            response.topics = yield from _completed(response.topics, denied, caller)

    return Passed(request, finish)


def _named_topics(
    topics: list[OffsetFetchRequestTopic], caller: Caller
) -> Steps[tuple[list[OffsetFetchRequestTopic], list[OffsetFetchResponseTopic]]]:
    passed, denied = yield from divided(topics, lambda topic: caller.allows_topic(Operation.DESCRIBE, topic.name))
    return passed, (yield from _unfetched(denied, TOPIC_DENIED))


def _completed(
    topics: list[OffsetFetchResponseTopic], denied: list[OffsetFetchResponseTopic] | None, caller: Caller
) -> Steps[list[OffsetFetchResponseTopic]]:
    if denied is not None:
        return [*topics, *denied]
    visible, _ = yield from divided(
        topics, lambda topic: caller.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    )
    return visible


def _unfetched(topics: Iterable[OffsetFetchRequestTopic], code: ErrorCode) -> Steps[list[OffsetFetchResponseTopic]]:
    return refused_topics(
        topics,
        lambda topic: topic.partition_indexes,
        lambda index: OffsetFetchResponsePartition(index, NO_OFFSET, error_code=code),
        lambda topic, results: OffsetFetchResponseTopic(topic.name, results),
    )


def offset_delete(request: OffsetDeleteRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DELETE on the group, and READ on each topic."""
    if not caller.allows_group(Operation.DELETE, request.group_id):
        return Refused(OffsetDeleteResponse(error_code=GROUP_DENIED))
    passed, denied = yield from divided(request.topics, lambda topic: caller.allows_topic(Operation.READ, topic.name))
    refused = yield from refused_topics(
        denied,
        lambda topic: topic.partitions,
        lambda each: OffsetDeleteResponsePartition(each.partition_index, TOPIC_DENIED),
        lambda topic, results: OffsetDeleteResponseTopic(topic.name, results),
    )
    if not passed:
        return Refused(OffsetDeleteResponse(topics=refused))
    request.topics = passed

    def finish(response: OffsetDeleteResponse) -> Steps[None]:
        yield
        if not response.error_code:
            response.topics += refused

    return Passed(request, finish)


def describe_groups(request: DescribeGroupsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on each group."""
    request.groups, denied = yield from divided(
        request.groups, lambda group_id: caller.allows_group(Operation.DESCRIBE, group_id)
    )

    def finish(response: DescribeGroupsResponse) -> Steps[None]:
        if request.include_authorized_operations:
            for group in response.groups:
                group.authorized_operations = caller.operations(GROUP_OPERATIONS, ResourceType.GROUP, group.group_id)
                yield
        for group_id in dict.fromkeys(denied):
            response.groups.append(DescribedGroup(GROUP_DENIED, MESSAGES[GROUP_DENIED], group_id))
            yield

    return Passed(request, finish)


def list_groups(request: ListGroupsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DESCRIBE on the cluster, or on each group: the others are left out."""
    yield
    if caller.sees_cluster(Operation.DESCRIBE):
        return Passed(request)

    def finish(response: ListGroupsResponse) -> Steps[None]:
        response.groups, _ = yield from divided(
            response.groups, lambda group: caller.sees(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        )

    return Passed(request, finish)


def delete_groups(request: DeleteGroupsRequest, caller: Caller, context: BrokerContext) -> Steps[Outcome]:
    """DELETE on each group."""
    request.groups_names, denied = yield from divided(
        request.groups_names, lambda group_id: caller.allows_group(Operation.DELETE, group_id)
    )

    def finish(response: DeleteGroupsResponse) -> Steps[None]:
        for group_id in dict.fromkeys(denied):
            response.results.append(DeletableGroupResult(group_id, GROUP_DENIED))
            yield

    return Passed(request, finish)


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, caller: Caller, context: BrokerContext
) -> Steps[Outcome]:
    """READ on the group, and DESCRIBE on each topic that the member names."""
    if not caller.allows_group(Operation.READ, request.group_id):
        return Refused(ConsumerGroupHeartbeatResponse(error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED]))
    for name in request.subscribed_topic_names or ():
        if not caller.allows_topic(Operation.DESCRIBE, name):
            return Refused(
                ConsumerGroupHeartbeatResponse(error_code=TOPIC_DENIED, error_message=MESSAGES[TOPIC_DENIED])
            )
        yield
    return Passed(request)


def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, caller: Caller, context: BrokerContext
) -> Steps[Outcome]:
    """DESCRIBE on each group, and on all topics that its members read."""
    request.group_ids, denied = yield from divided(
        request.group_ids, lambda group_id: caller.allows_group(Operation.DESCRIBE, group_id)
    )

    def finish(response: ConsumerGroupDescribeResponse) -> Steps[None]:
        for group in response.groups:
            for member in group.members:
                if any(not caller.allows_topic(Operation.DESCRIBE, name) for name in _topics_of(member)):
                    _hide(group)
                    break
                yield
            if request.include_authorized_operations and not group.error_code:
                group.authorized_operations = caller.operations(GROUP_OPERATIONS, ResourceType.GROUP, group.group_id)
            yield
        for group_id in dict.fromkeys(denied):
            response.groups.append(DescribedConsumerGroup(GROUP_DENIED, MESSAGES[GROUP_DENIED], group_id))
            yield

    return Passed(request, finish)


def _topics_of(member: DescribedMember) -> set[str]:
    assigned = [*member.assignment.topic_partitions, *member.target_assignment.topic_partitions]
    return {*member.subscribed_topic_names, *(each.topic_name for each in assigned)}


def _hide(group: DescribedConsumerGroup) -> None:
    group.error_code = TOPIC_DENIED
    group.error_message = "The described group uses topics that the client is not authorized to describe."
    group.members = []

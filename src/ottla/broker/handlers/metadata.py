"""Metadata (key 3), v0-v12.

Answers the live brokers with the addresses that the caller can reach, and the requested topics: all of them for null
(v1+; an empty list in v0), none for an empty list (v1+).  Topics are named, or from v12 on given by id; ids in v10 and
v11 are INVALID_REQUEST, as in Apache Kafka.  An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an illegal one
INVALID_TOPIC_EXCEPTION, an unknown id UNKNOWN_TOPIC_ID.

A topic that does not exist is created when the request allows it (v4+; before, always) and auto.create.topics.enable
does, up to max.auto.create.topics.per.minute of a connection (beyond it, as where the broker has no room for more
partitions: not created, with UNKNOWN_TOPIC_OR_PARTITION, which clients retry, or POLICY_VIOLATION).
Departure: it is created before the answer, so the first answer has its partitions; Apache Kafka answers
UNKNOWN_TOPIC_OR_PARTITION once.  There is no controller: any broker serves admin requests, and all name the live one
with the lowest id.  A partition whose leader is not live, or not elected, is LEADER_NOT_AVAILABLE without a leader;
replicas on brokers that are not live are offline.  So is this broker's where its log could not be created or opened.
While this broker may not lead and others live, the connection is closed after the second answer
(async_requests.py).  Until its session has ended it still names itself among the brokers, since librdkafka drops a
broker that is not there and looks no more for the leader of a partition that another answer says it leads.  Then no
other answer does, and it leaves itself out: kafka-python requests metadata from the broker with the fewest requests in
flight, which is this one while it has produces in flight to the others.  No topic gets an error as a whole:
kafka-python takes it for deleted, and its group rebalances.
Authorized operations, when requested, are all operations without an authorizer.  Not done: v13 (top-level error code).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.broker.context import BrokerContext, Call, NewTopic, count_mutations, releases_clients
from ottla.broker.shards.internal_topics import internal_topic
from ottla.coordination.topics_view import PartitionNode, Topic
from ottla.model.broker_settings import AUTO_CREATE_TOPICS_ENABLE, MAX_AUTO_CREATE_TOPICS_PER_MINUTE
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.identifiers import INTERNAL_TOPICS, NO_LEADER_EPOCH, topic_name_problem
from ottla.model.partition_state import NO_LEADER
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.schemas.metadata import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.runtime.offload import Offload
from ottla.security.acl import CLUSTER_OPERATION_BITS, TOPIC_OPERATION_BITS

# Of admin APIs.  Of a topic in Metadata they are answered as Apache Kafka does: clients ask again.
_TREE_AWAY: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
_IDS_FROM_VERSION: Final = 12


async def handle(request: MetadataRequest, context: BrokerContext, call: Call) -> MetadataResponse:
    turn = LoopOffload()
    operations = TOPIC_OPERATION_BITS if request.include_topic_authorized_operations else NO_AUTHORIZED_OPERATIONS
    if request.topics is None or (call.api_version == 0 and not request.topics):
        by_name = context.topics.by_name
        topics = []
        for name in sorted(by_name):
            await turn.pause()
            topics.append(await _topic_entry(context, by_name[name], operations, turn))
    elif call.api_version < _IDS_FROM_VERSION and any(
        t.name is None or t.topic_id != ZERO_UUID for t in request.topics
    ):
        topics = [
            _error_entry(each, ErrorCode.INVALID_REQUEST, call.api_version)
            for each in (await _distinct(request.topics, turn)).values()
        ]
    else:
        topics = []
        for wanted in (await _distinct(request.topics, turn)).values():
            await turn.pause()
            topics.append(
                await _wanted_entry(context, wanted, call, request.allow_auto_topic_creation, operations, turn)
            )
    brokers = context.brokers.addresses_for(call.local_address)
    controller_id = context.brokers.controller_id
    if context.brokers.is_replaced and request.topics != [] and releases_clients(context):
        brokers = [each for each in brokers if each.node_id != context.node_id]
        if controller_id == context.node_id:
            controller_id = min((each.node_id for each in brokers), default=controller_id)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(*address) for address in brokers],
        cluster_id=context.cluster_id,
        controller_id=controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATION_BITS if request.include_cluster_authorized_operations else NO_AUTHORIZED_OPERATIONS
        ),
    )


async def _distinct(
    topics: list[MetadataRequestTopic], turn: Offload
) -> dict[tuple[str | None, UUID], MetadataRequestTopic]:
    distinct: dict[tuple[str | None, UUID], MetadataRequestTopic] = {}
    for topic in topics:
        distinct[topic.name, topic.topic_id] = topic
        await turn.pause()
    return distinct


async def _wanted_entry(
    context: BrokerContext,
    wanted: MetadataRequestTopic,
    call: Call,
    may_create: bool,
    operations: int,
    turn: Offload,
) -> MetadataResponseTopic:
    if wanted.topic_id != ZERO_UUID:
        known = context.topics.by_id.get(wanted.topic_id)
        if known is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        return await _topic_entry(context, known, operations, turn)
    if wanted.name is None:
        return MetadataResponseTopic(ErrorCode.INVALID_REQUEST, None)
    known = context.topics.by_name.get(wanted.name)
    if known is None:
        code = await _create(context, wanted.name, call, may_create)
        known = context.topics.by_name.get(wanted.name)
        if known is None:
            return MetadataResponseTopic(
                code, wanted.name, is_internal=wanted.name in INTERNAL_TOPICS, topic_authorized_operations=operations
            )
    return await _topic_entry(context, known, operations, turn)


async def _create(context: BrokerContext, name: str, call: Call, may_create: bool) -> ErrorCode:
    """Create the topic if that is requested and allowed; the error to answer if it does not exist afterwards."""
    if topic_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if may_create and context.settings[AUTO_CREATE_TOPICS_ENABLE] and _is_counted_in(call, context):
        try:
            new = (
                internal_topic(name, context.settings, is_sole=context.is_sole)
                if name in INTERNAL_TOPICS
                else NewTopic(name, is_automatic=True)
            )
            created = await context.topic_admin.create(new)
            count_mutations(call, len(created.partitions))
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another request was faster
                return error.code
        except OttlaError as error:
            is_tree_away = error.error_code in _TREE_AWAY
            return ErrorCode.LEADER_NOT_AVAILABLE if is_tree_away else error.error_code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_counted_in(call: Call, context: BrokerContext) -> bool:
    """Whether this connection may have one more topic created now."""
    per_minute = context.settings[MAX_AUTO_CREATE_TOPICS_PER_MINUTE]
    return call.auto_creations is None or call.auto_creations.take(context.clock.monotonic_ms(), per_minute)


def _error_entry(wanted: MetadataRequestTopic, code: ErrorCode, api_version: int) -> MetadataResponseTopic:
    name = wanted.name
    if name is None and api_version < _IDS_FROM_VERSION:
        name = ""  # these versions have no null name
    return MetadataResponseTopic(code, name, wanted.topic_id)


async def _topic_entry(context: BrokerContext, topic: Topic, operations: int, turn: Offload) -> MetadataResponseTopic:
    partitions: list[MetadataResponsePartition] = []
    for index, partition in enumerate(topic.partitions):
        partitions.append(partition_entry(context, topic.name, index, partition))
        await turn.pause()
    return MetadataResponseTopic(
        ErrorCode.NONE, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions, operations
    )


def partition_entry(
    context: BrokerContext, topic_name: str, index: int, partition: PartitionNode
) -> MetadataResponsePartition:
    """A partition as the tree has it, except that no client can use a leader that is not live, or lacks its log.

    A broker that lost its session and registered again does not lead as before, though the tree names it until the next
    election; only a standalone one continues to lead in another life.  Of its own role this broker knows more than its
    views, of which one may be older than its registration.
    """
    state = partition.state
    live = context.brokers.live.by_id
    is_led = state.leader in live if context.is_sole else context.brokers.live.has_leader(state)
    replicas: list[int] = list(partition.replicas)
    code, leader = ErrorCode.NONE, state.leader
    offline: list[int] = [replica for replica in partition.replicas if replica not in live]
    if leader == context.node_id:
        here = context.partitions.find(topic_name, index)
        if here is None:
            offline = [*offline, context.node_id]
        if here is None or here.leadership_error(NO_LEADER_EPOCH) or not is_led or not context.brokers.may_lead:
            # A client that was sent back here would stay with a broker that is cut off from the others.
            leader = NO_LEADER
    elif not is_led:
        leader = NO_LEADER
    if leader == NO_LEADER:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        code, index, leader, state.leader_epoch, replicas, list(state.in_sync_nodes()), offline
    )

"""FindCoordinator (key 10), v0-v4.

A group's coordinator is the leader of its partition of `__consumer_offsets`.  The topic is created when the first group
is asked for, before the answer; Apache Kafka answers COORDINATOR_NOT_AVAILABLE until it exists.
COORDINATOR_NOT_AVAILABLE here means that the topic could not be created, that the partition has no live leader, or that
this broker leads it and cannot use it.

Not done: transactions.  A transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client treats as
final, so that a transactional producer ends at once instead of retrying for minutes; the message gives the reason.
Other types of key are INVALID_REQUEST.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.groups.offsets_topic import offsets_topic
from ottla.broker.handlers.error_text import error_text
from ottla.broker.net.limits import GROUP_ID_LENGTH_MAX
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, NodeId
from ottla.model.partition_state import NO_LEADER
from ottla.protocol.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.runtime.loop_offload import LoopOffload

GROUP: Final = 0
TRANSACTION: Final = 1
_MANY_FROM_VERSION: Final = 4
_NO_NODE: Final = -1
_UNUSABLE: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


async def handle(request: FindCoordinatorRequest, context: BrokerContext, call: Call) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.api_version >= _MANY_FROM_VERSION else [request.key]
    failure = await _make_topic(context) if request.key_type == GROUP and keys else None
    turn = LoopOffload()
    # Each once, however often it is named.
    found: dict[str, Coordinator] = {}
    for key in keys:
        await turn.pause()
        if key not in found:
            each = found[key] = replace(failure) if failure else _find(key, request.key_type, context, call)
            each.key = key
    if call.api_version >= _MANY_FROM_VERSION:
        return FindCoordinatorResponse(coordinators=list(found.values()))
    only = found[request.key]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _make_topic(context: BrokerContext) -> Coordinator | None:
    """Create `__consumer_offsets` if it does not exist; the error to answer if that fails."""
    if context.groups.exists:
        return None
    try:
        await context.topic_admin.create(offsets_topic(context.settings, is_sole=context.is_sole))
    except OttlaError as error:
        if isinstance(error, RequestError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return None  # another request was faster
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_text(error))
    return None


def _find(key: str, key_type: int, context: BrokerContext, call: Call) -> Coordinator:
    if key_type == TRANSACTION:
        problem = "this broker does not offer transactions; use an idempotent producer without a transactional id"
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, problem)
    if key_type != GROUP:
        return _refused(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
    if len(key) > GROUP_ID_LENGTH_MAX:
        return _refused(ErrorCode.INVALID_GROUP_ID, f"a group's id has {GROUP_ID_LENGTH_MAX} characters at most")
    leader = _leader_of(key, context)
    if leader == context.node_id and context.groups.state_of(key) in _UNUSABLE:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the partition of this group cannot be used")
    for address in context.brokers.addresses_for(call.local_address):
        if address.node_id == leader:
            return Coordinator("", address.node_id, address.host, address.port)
    return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the partition of this group has no leader now")


def _leader_of(group_id: str, context: BrokerContext) -> NodeId:
    """The leader of the group's partition, as this broker's view has it.

    One that registered again since it was elected coordinates nothing before the next election.
    """
    topic = context.topics.by_name.get(OFFSETS_TOPIC)
    if topic is None:
        return NO_LEADER
    state = topic.partitions[partition_of(group_id, len(topic.partitions))].state
    return state.leader if context.is_sole or context.brokers.live.has_leader(state) else NO_LEADER


def _refused(code: ErrorCode, message: str) -> Coordinator:
    return Coordinator("", _NO_NODE, "", _NO_NODE, code, message)

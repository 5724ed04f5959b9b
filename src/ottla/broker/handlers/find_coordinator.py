"""FindCoordinator (key 10), v0-v6.

A group's coordinator is the leader of its partition of `__consumer_offsets`, that of a transactional id the leader of
its partition of `__transaction_state`.  The topic is created with the first request, before the answer; Apache Kafka
answers COORDINATOR_NOT_AVAILABLE until it exists.
COORDINATOR_NOT_AVAILABLE here means that the topic could not be created, that the partition has no live leader, or that
this broker leads it and cannot use it.

Other types of key are INVALID_REQUEST, also those of share groups (v6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ottla.broker.context import BrokerContext, Call, Groups, Transactions
from ottla.broker.handlers.error_text import error_text
from ottla.broker.handlers.internal_topic_creation import create_internal_topic
from ottla.broker.net.limits import GROUP_ID_LENGTH_MAX, TRANSACTIONAL_ID_LENGTH_MAX
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.group_partition import partition_of
from ottla.model.identifiers import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, NodeId
from ottla.model.partition_state import NO_LEADER
from ottla.protocol.schemas.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.runtime.loop_offload import LoopOffload

GROUP: Final = 0
TRANSACTION: Final = 1
_MANY_FROM_VERSION: Final = 4
_NO_NODE: Final = -1
_UNUSABLE: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class _Kind(NamedTuple):
    """What has a coordinator."""

    name: str
    topic: str
    length_max: int
    too_long: ErrorCode
    coordinator: Callable[[BrokerContext], Groups | Transactions]


_KINDS: Final[Mapping[int, _Kind]] = {
    GROUP: _Kind(
        "group", OFFSETS_TOPIC, GROUP_ID_LENGTH_MAX, ErrorCode.INVALID_GROUP_ID, lambda context: context.groups
    ),
    TRANSACTION: _Kind(
        "transaction",
        TRANSACTIONS_TOPIC,
        TRANSACTIONAL_ID_LENGTH_MAX,
        ErrorCode.INVALID_REQUEST,
        lambda context: context.transactions,
    ),
}


async def handle(request: FindCoordinatorRequest, context: BrokerContext, call: Call) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.api_version >= _MANY_FROM_VERSION else [request.key]
    kind = _KINDS.get(request.key_type)
    failure = await _create_topic(kind, context) if kind is not None and keys else None
    turn = LoopOffload()
    # Each once, however often it is named.
    found: dict[str, Coordinator] = {}
    for key in keys:
        await turn.pause()
        if key not in found:
            each = found[key] = replace(failure) if failure else _find(key, kind, request.key_type, context, call)
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


async def _create_topic(kind: _Kind, context: BrokerContext) -> Coordinator | None:
    """Create the topic of the coordinators if it does not exist; the error to answer if that fails."""
    if kind.coordinator(context).exists:
        return None
    try:
        await create_internal_topic(context, kind.topic)
    except OttlaError as error:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, error_text(error))
    return None


def _find(key: str, kind: _Kind | None, key_type: int, context: BrokerContext, call: Call) -> Coordinator:
    if kind is None:
        return _refused(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
    if len(key) > kind.length_max:
        return _refused(kind.too_long, f"the id of a {kind.name} has {kind.length_max} characters at most")
    leader = _leader_of(key, kind.topic, context)
    if leader == context.node_id and kind.coordinator(context).state_of(key) in _UNUSABLE:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of this {kind.name} cannot be used")
    for address in context.brokers.addresses_for(call.local_address):
        if address.node_id == leader:
            return Coordinator("", address.node_id, address.host, address.port)
    return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of this {kind.name} has no leader now")


def _leader_of(key: str, topic_name: str, context: BrokerContext) -> NodeId:
    """The leader of the key's partition, as this broker's view has it.

    One that registered again since it was elected coordinates nothing before the next election.
    """
    topic = context.topics.by_name.get(topic_name)
    if topic is None:
        return NO_LEADER
    state = topic.partitions[partition_of(key, len(topic.partitions))].state
    return state.leader if context.is_sole or context.brokers.live.has_leader(state) else NO_LEADER


def _refused(code: ErrorCode, message: str) -> Coordinator:
    return Coordinator("", _NO_NODE, "", _NO_NODE, code, message)

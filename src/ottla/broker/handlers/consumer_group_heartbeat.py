"""ConsumerGroupHeartbeat (key 68), v0-v1.

A member of a consumer group (KIP-848) joins, stays and leaves by this one call.  v1 has the subscription by pattern
and members that make their ids; in v0 the broker makes them.  See groups/consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.groups.coordinator import note_refused_join
from ottla.groups.commands import ConsumerGroupHeartbeat, TopicIdPartitions
from ottla.groups.consumer.member import JOIN_EPOCH
from ottla.groups.replies import ConsumerGroupHeartbeatReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import Operation, ResourceType
from ottla.security.authorizer import Rights

_OWN_IDS_FROM: Final = 1
# Of one member.  They are kept, compared and written at once.
_NAMES_MAX: Final = 10_000
_OWNED_MAX: Final = 20_000


def answer(
    request: ConsumerGroupHeartbeatRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[ConsumerGroupHeartbeatResponse], None],
) -> Steps[None]:
    owned: list[TopicIdPartitions] | None = None
    names_count, owned_count = len(request.subscribed_topic_names or ()), 0
    if request.topic_partitions is not None:
        owned = []
        for each in request.topic_partitions:
            owned.append(TopicIdPartitions(each.topic_id, each.partitions))
            owned_count += 1 + len(each.partitions)
            yield
    if names_count > _NAMES_MAX or owned_count > _OWNED_MAX:
        problem = f"{_NAMES_MAX} names (use a pattern) and {_OWNED_MAX} partitions are taken"
        message = f"the member names {names_count} topics and {owned_count} partitions: {problem}"
        reply(ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message))
        return
    command = ConsumerGroupHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        call.client_id or "",
        call.client_host,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
        owned,
        makes_own_id=call.api_version >= _OWN_IDS_FROM,
        sees_topic=None if call.rights is None else partial(_sees_topic, call.rights),
    )

    def on_reply(found: ConsumerGroupHeartbeatReply) -> None:
        if request.member_epoch == JOIN_EPOCH:
            note_refused_join(request.group_id, call, found.error)
        reply(_response(found))

    context.groups.submit(request.group_id, command, on_reply)


def _sees_topic(rights: Rights, name: str) -> bool:
    return rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _response(found: ConsumerGroupHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assigned = found.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=found.error,
        error_message=found.message,
        member_id=found.member_id,
        member_epoch=found.member_epoch,
        heartbeat_interval_ms=found.heartbeat_interval_ms,
        assignment=(
            None
            if assigned is None
            else Assignment([AssignedTopicPartitions(each.topic_id, list(each.partitions)) for each in assigned])
        ),
    )

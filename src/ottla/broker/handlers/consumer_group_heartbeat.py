"""ConsumerGroupHeartbeat (key 68), v0-v1.

A member of a consumer group (KIP-848) joins, stays and leaves by this one call.  v1 has the subscription by pattern
and members that make their ids; in v0 the broker makes them.  See groups/consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.groups.refused_join import note_refused_join
from ottla.groups.commands import ConsumerGroupHeartbeat, TopicIdPartitions
from ottla.groups.consumer.member import JOIN_EPOCH
from ottla.groups.replies import ConsumerGroupHeartbeatReply
from ottla.protocol.schemas.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_OWN_IDS_FROM: Final = 1


def answer(
    request: ConsumerGroupHeartbeatRequest,
    broker: BrokerContext,
    call: Call,
    reply: Callable[[ConsumerGroupHeartbeatResponse], None],
) -> None:
    owned = request.topic_partitions
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
        None if owned is None else [TopicIdPartitions(each.topic_id, each.partitions) for each in owned],
        makes_own_id=call.api_version >= _OWN_IDS_FROM,
    )

    def on_reply(found: ConsumerGroupHeartbeatReply) -> None:
        if request.member_epoch == JOIN_EPOCH:
            note_refused_join(request.group_id, call, found.error)
        reply(_response(found))

    broker.groups.submit(request.group_id, command, on_reply)


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

"""Heartbeat (key 12), v0-v4.

From a member of a classic group; answered at once (groups/classic).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import BrokerContext, Call
from ottla.groups.commands import Heartbeat
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse


def answer(
    request: HeartbeatRequest, context: BrokerContext, call: Call, reply: Callable[[HeartbeatResponse], None]
) -> None:
    command = Heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)

    def on_reply(error: ErrorCode) -> None:
        reply(HeartbeatResponse(error_code=error))

    context.groups.submit(request.group_id, command, on_reply)

"""SyncGroup (key 14), v0-v5.

The answer is held until the leader's assignment is stable in the log (groups/classic).  From v5 on the protocol's type
and name are required, as in Apache Kafka; else INCONSISTENT_GROUP_PROTOCOL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.groups.commands import MemberAssignment, SyncGroup
from ottla.groups.replies import SyncReply
from ottla.groups.shared_bytes import BARE_MEMBER_BYTES, MEMBER_BYTES_MAX
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.runtime.steps import Steps

_NAMES_FROM: Final = 5
# More than there can be members (groups/shared_bytes.py).
_ASSIGNMENTS_MAX: Final = MEMBER_BYTES_MAX // BARE_MEMBER_BYTES


def answer(
    request: SyncGroupRequest, context: BrokerContext, call: Call, reply: Callable[[SyncGroupResponse], None]
) -> Steps[None]:
    if call.api_version >= _NAMES_FROM and (request.protocol_type is None or request.protocol_name is None):
        reply(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    if len(request.assignments) > _ASSIGNMENTS_MAX:
        reply(SyncGroupResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    assignments: list[MemberAssignment] = []
    for each in request.assignments:
        assignments.append(MemberAssignment(each.member_id, each.assignment))
        yield
    command = SyncGroup(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        assignments,
    )

    def on_reply(synced: SyncReply) -> None:
        reply(
            SyncGroupResponse(
                error_code=synced.error,
                protocol_type=synced.protocol_type,
                protocol_name=synced.protocol_name,
                assignment=synced.assignment,
            )
        )

    context.groups.submit(request.group_id, command, on_reply)

"""LeaveGroup (key 13), v0-v5.

One member up to v2, then several, of which static ones may be named by their instance alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.limits import GROUP_REASON_LENGTH_MAX
from ottla.groups.commands import LeaveGroup, LeavingMember
from ottla.groups.replies import LeaveReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_MANY_FROM: Final = 3


def answer(
    request: LeaveGroupRequest, broker: BrokerContext, call: Call, reply: Callable[[LeaveGroupResponse], None]
) -> None:
    takes_many = call.api_version >= _MANY_FROM
    if takes_many:
        members = [
            LeavingMember(each.member_id, each.group_instance_id, (each.reason or "")[:GROUP_REASON_LENGTH_MAX] or None)
            for each in request.members
        ]
    else:
        members = [LeavingMember(request.member_id, None)]

    def on_reply(left: LeaveReply) -> None:
        error = left.error
        if not takes_many and error is ErrorCode.NONE and left.members:
            # These versions have no field for a member's own error.
            error = left.members[0].error
        reply(LeaveGroupResponse(error_code=error, members=[MemberResponse(*member) for member in left.members]))

    broker.groups.submit(request.group_id, LeaveGroup(request.group_id, members), on_reply)

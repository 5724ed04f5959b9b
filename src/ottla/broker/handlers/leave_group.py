"""LeaveGroup (key 13), v0-v5.

One member up to v2, then several, of which static ones may be named by their instance alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.net.limits import GROUP_REASON_LENGTH_MAX
from ottla.broker.shards.shard_table import Gathering
from ottla.groups.commands import LeaveGroup, LeavingMember
from ottla.groups.replies import LeaveReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.runtime.steps import Steps

_MANY_FROM: Final = 3
_MEMBERS_OF_TURN: Final = 500


def answer(
    request: LeaveGroupRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[LeaveGroupResponse | Steps[LeaveGroupResponse]], None],
) -> Steps[None]:
    takes_many = call.api_version >= _MANY_FROM
    members: list[LeavingMember] = []
    if takes_many:
        for each in request.members:
            reason = (each.reason or "")[:GROUP_REASON_LENGTH_MAX] or None
            members.append(LeavingMember(each.member_id, each.group_instance_id, reason))
            yield
    else:
        members = [LeavingMember(request.member_id, None)]

    def response(parts: list[LeaveReply]) -> Steps[LeaveGroupResponse]:
        error = next((each.error for each in parts if each.error is not ErrorCode.NONE), ErrorCode.NONE)
        left: list[MemberResponse] = []
        for each in () if error else parts:
            for member in each.members:
                left.append(MemberResponse(*member))
                yield
        if not takes_many and left:
            # These versions have no field for a member's own error.
            error = ErrorCode(left[0].error_code)
        return LeaveGroupResponse(error_code=error, members=left)

    starts = range(0, max(len(members), 1), _MEMBERS_OF_TURN)
    gathering: Gathering[LeaveReply] = Gathering(len(starts), lambda parts: reply(response(parts)))
    for number, start in enumerate(starts):
        command = LeaveGroup(request.group_id, members[start : start + _MEMBERS_OF_TURN])
        context.groups.submit(request.group_id, command, gathering.place(number))
        yield

"""JoinGroup (key 11), v0-v9.

The answer is held until the group's members have joined (groups/classic).  v0 has no rebalance time-out: the session's
is used.  From v4 on a dynamic member without an id gets one with MEMBER_ID_REQUIRED (KIP-394); from v9 on a static
leader that returns is instructed to skip the assignment (KIP-814).  Departures: one member's own data, mostly its
protocols' names and metadata, takes 1 MiB at most, else INVALID_REQUEST; its reason is cut; when the members of all
groups, of this group or of the client's network hold too much memory (groups/shared_bytes.py),
COORDINATOR_NOT_AVAILABLE makes clients retry.  A new member whose connection closes before its first join completes is
removed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.groups.coordinator import note_refused_join
from ottla.broker.net.limits import GROUP_MEMBER_METADATA_BYTES_MAX, GROUP_REASON_LENGTH_MAX
from ottla.groups.commands import JoinGroup, JoinProtocol
from ottla.groups.replies import JoinReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.reader import ELEMENT_BYTES
from ottla.protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_OWN_REBALANCE_TIMEOUT_FROM: Final = 1
_MEMBER_ID_REQUIRED_FROM: Final = 4
_NULL_NAMES_FROM: Final = 7
_SKIPS_ASSIGNMENT_FROM: Final = 9


def answer(
    request: JoinGroupRequest, context: BrokerContext, call: Call, reply: Callable[[JoinGroupResponse], None]
) -> None:
    version = call.api_version
    protocols_max = GROUP_MEMBER_METADATA_BYTES_MAX // ELEMENT_BYTES
    if len(request.protocols) > protocols_max or _kept_bytes(request) > GROUP_MEMBER_METADATA_BYTES_MAX:
        reply(_response(JoinReply(ErrorCode.INVALID_REQUEST, request.member_id), version))
        return
    has_timeout = version >= _OWN_REBALANCE_TIMEOUT_FROM
    command = JoinGroup(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        call.client_id or "",
        call.client_host,
        request.protocol_type,
        [JoinProtocol(each.name, each.metadata) for each in request.protocols],
        request.session_timeout_ms,
        request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        (request.reason or "")[:GROUP_REASON_LENGTH_MAX] or None,
        requires_known_member_id=version >= _MEMBER_ID_REQUIRED_FROM,
        may_skip_assignment=version >= _SKIPS_ASSIGNMENT_FROM,
        waiter=call.connection,
    )

    def on_reply(joined: JoinReply) -> None:
        note_refused_join(request.group_id, call, joined.error)
        reply(_response(joined, version))

    context.groups.submit(request.group_id, command, on_reply)


def _kept_bytes(request: JoinGroupRequest) -> int:
    """The fields of a member that are kept until it leaves, also those beyond a record's limits while it joins."""
    texts = len(request.protocol_type) + len(request.group_instance_id or "")
    return texts + sum(ELEMENT_BYTES + len(each.name) + len(each.metadata) for each in request.protocols)


def _response(joined: JoinReply, version: int) -> JoinGroupResponse:
    protocol_name = joined.protocol_name
    if protocol_name is None and version < _NULL_NAMES_FROM:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol_name,
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[JoinGroupResponseMember(*member) for member in joined.members],
    )

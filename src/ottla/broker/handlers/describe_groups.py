"""DescribeGroups (key 15), v0-v6.

Classic groups.  Any other group has the state "Dead" and no error, from v6 on
GROUP_ID_NOT_FOUND.  Authorized operations, when asked for (v3+), are all operations without an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
from ottla.groups import replies
from ottla.groups.commands import DescribeGroup
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_groups import (
    NO_AUTHORIZED_OPERATIONS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.runtime.steps import Steps
from ottla.security.acl import GROUP_OPERATION_BITS

_NOT_FOUND_FROM: Final = 6


def answer(
    request: DescribeGroupsRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[DescribeGroupsResponse | Steps[DescribeGroupsResponse]], None],
) -> Steps[None]:
    operations = GROUP_OPERATION_BITS if request.include_authorized_operations else NO_AUTHORIZED_OPERATIONS

    def response(described: list[replies.DescribedGroup]) -> Steps[DescribeGroupsResponse]:
        groups: list[DescribedGroup] = []
        for each in described:
            groups.append(_entry(each, call.api_version, operations))
            yield
        return DescribeGroupsResponse(groups=groups)

    # Each once: a group's members may take megabytes, and naming it takes a few bytes.
    group_ids = list(dict.fromkeys(request.groups))
    gathering: Gathering[replies.DescribedGroup] = Gathering(
        len(group_ids), lambda described: reply(response(described))
    )
    for index, group_id in enumerate(group_ids):
        context.groups.submit(group_id, DescribeGroup(group_id), gathering.place(index))
        yield


def _entry(described: replies.DescribedGroup, version: int, operations: int) -> DescribedGroup:
    error, message = described.error, None
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        if version >= _NOT_FOUND_FROM:
            message = f"there is no classic group {described.group_id}"
        else:
            error = ErrorCode.NONE
    failed = described.error not in {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}
    return DescribedGroup(
        error,
        message,
        described.group_id,
        "" if failed else described.state,
        described.protocol_type,
        described.protocol_name,
        [DescribedGroupMember(*member) for member in described.members],
        NO_AUTHORIZED_OPERATIONS if failed else operations,
    )

"""ListGroups (key 16), v0-v5.

Filtered by state (v4+) and by kind (v5+).  While some groups are not loaded yet, COORDINATOR_LOAD_IN_PROGRESS and
none of them.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import BrokerContext, Call
from ottla.groups.commands import ListGroups
from ottla.groups.replies import ListReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def answer(
    request: ListGroupsRequest, broker: BrokerContext, call: Call, reply: Callable[[ListGroupsResponse], None]
) -> None:
    def on_all(listed: list[ListReply]) -> None:
        error = next((each.error for each in listed if each.error is not ErrorCode.NONE), ErrorCode.NONE)
        groups = [ListedGroup(*group) for each in listed for group in each.groups]
        reply(ListGroupsResponse(error_code=error, groups=[] if error else groups))

    broker.groups.submit_to_all(ListGroups(request.states_filter, request.types_filter), on_all)

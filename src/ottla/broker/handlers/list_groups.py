"""ListGroups (key 16), v0-v5.

Filtered by state (v4+) and by kind (v5+).  While some groups are not loaded yet, COORDINATOR_LOAD_IN_PROGRESS and
none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.groups.commands import ListGroups
from ottla.groups.replies import ListReply
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.runtime.steps import Steps

# Of states, and of kinds: there are a handful.
_FILTERS_MAX: Final = 100


def answer(
    request: ListGroupsRequest,
    broker: BrokerContext,
    call: Call,
    reply: Callable[[ListGroupsResponse | Steps[ListGroupsResponse]], None],
) -> Steps[None]:
    if len(request.states_filter) > _FILTERS_MAX or len(request.types_filter) > _FILTERS_MAX:
        reply(ListGroupsResponse(error_code=ErrorCode.INVALID_REQUEST))
        return

    def told(listed: list[ListReply]) -> Steps[ListGroupsResponse]:
        error = next((each.error for each in listed if each.error is not ErrorCode.NONE), ErrorCode.NONE)
        groups: list[ListedGroup] = []
        for each in () if error else listed:
            for group in each.groups:
                groups.append(ListedGroup(*group))
                yield
        return ListGroupsResponse(error_code=error, groups=groups)

    command = ListGroups(request.states_filter, request.types_filter)
    yield from broker.groups.submit_to_all(command, lambda listed: reply(told(listed)))

"""ListGroups (key 16), v0-v5.

Filtered by state (v4+) and by kind (v5+).  While some groups are not loaded yet, COORDINATOR_LOAD_IN_PROGRESS and
none of them.  Where some cannot be loaded, their error (COORDINATOR_NOT_AVAILABLE) and all others: a client that reads
on has these, and Apache Kafka's fail with the error as they do there.
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
    context: BrokerContext,
    call: Call,
    reply: Callable[[ListGroupsResponse | Steps[ListGroupsResponse]], None],
) -> Steps[None]:
    if len(request.states_filter) > _FILTERS_MAX or len(request.types_filter) > _FILTERS_MAX:
        reply(ListGroupsResponse(error_code=ErrorCode.INVALID_REQUEST))
        return

    def response(listed: list[ListReply]) -> Steps[ListGroupsResponse]:
        errors = {each.error for each in listed} - {ErrorCode.NONE}
        is_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else next(iter(errors), ErrorCode.NONE)
        groups: list[ListedGroup] = []
        for each in () if is_loading else listed:
            for group in each.groups:
                groups.append(ListedGroup(*group))
                yield
        return ListGroupsResponse(error_code=error, groups=groups)

    command = ListGroups(request.states_filter, request.types_filter)
    yield from context.groups.submit_to_all(command, lambda listed: reply(response(listed)))

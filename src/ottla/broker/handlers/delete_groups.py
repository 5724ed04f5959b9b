"""DeleteGroups (key 42), v0-v2.

Groups without members are deleted, with their offsets.  NON_EMPTY_GROUP for one with members, GROUP_ID_NOT_FOUND for an
unknown one.  The deletion is durable when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import BrokerContext, Call
from ottla.broker.shards.shard_table import Gathering
from ottla.groups.commands import DeleteGroup
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.runtime.steps import Steps


def answer(
    request: DeleteGroupsRequest,
    context: BrokerContext,
    call: Call,
    reply: Callable[[DeleteGroupsResponse | Steps[DeleteGroupsResponse]], None],
) -> Steps[None]:
    group_ids = list(dict.fromkeys(request.groups_names))

    def response(errors: list[ErrorCode]) -> Steps[DeleteGroupsResponse]:
        results: list[DeletableGroupResult] = []
        for group_id, error in zip(group_ids, errors, strict=True):
            results.append(DeletableGroupResult(group_id, error))
            yield
        return DeleteGroupsResponse(results=results)

    gathering: Gathering[ErrorCode] = Gathering(len(group_ids), lambda errors: reply(response(errors)))
    for index, group_id in enumerate(group_ids):
        context.groups.submit(group_id, DeleteGroup(group_id), gathering.place(index))
        yield

"""DeleteGroups (key 42), v0-v2.

Groups without members are deleted, with their offsets.  NON_EMPTY_GROUP for one with members, GROUP_ID_NOT_FOUND for an
unknown one.  The deletion is durable when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.context import BrokerContext, Call
from ottla.broker.groups.gathering import Gathering
from ottla.groups.commands import DeleteGroup
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def answer(
    request: DeleteGroupsRequest, broker: BrokerContext, call: Call, reply: Callable[[DeleteGroupsResponse], None]
) -> None:
    group_ids = list(dict.fromkeys(request.groups_names))

    def on_all(errors: list[ErrorCode]) -> None:
        results = [DeletableGroupResult(*result) for result in zip(group_ids, errors, strict=True)]
        reply(DeleteGroupsResponse(results=results))

    gathering = Gathering(len(group_ids), on_all)
    for index, group_id in enumerate(group_ids):
        broker.groups.submit(group_id, DeleteGroup(group_id), gathering.place(index))

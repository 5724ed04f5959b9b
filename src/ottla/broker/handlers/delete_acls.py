"""DeleteAcls (key 31), v1-v3.

Deletes the access rules that each filter selects, and answers which these were.  The deletion is in force at this
broker when the answer is sent, at the others when they have followed.  Without an authorizer: SECURITY_DISABLED, with
the words of Apache Kafka.  An unknown number in a filter closes the connection.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.acl_elements import NO_AUTHORIZER, filter_of
from ottla.broker.handlers.error_text import error_text
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.schemas.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.runtime.loop_offload import LoopOffload
from ottla.security.acl import Acl


async def handle(request: DeleteAclsRequest, context: BrokerContext, call: Call) -> DeleteAclsResponse:
    if context.acls is None:
        refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    # All are read first: an unknown number must not leave half of the request done.
    filters = [filter_of(each) for each in request.filters]
    turn = LoopOffload()
    results: list[DeleteAclsFilterResult] = []
    for wanted in filters:
        try:
            deleted = await context.acls.delete(wanted)
        except OttlaError as error:
            code = error.error_code
            results.append(DeleteAclsFilterResult(code, error_text(error)))
            continue
        result = DeleteAclsFilterResult()
        results.append(result)
        for acl in deleted:
            result.matching_acls.append(_matching(acl))
            await turn.pause()
    return DeleteAclsResponse(filter_results=results)


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    (resource_type, pattern_type, name), (principal, host, operation, permission) = acl
    return DeleteAclsMatchingAcl(
        ErrorCode.NONE, None, resource_type, name, pattern_type, principal, host, operation, permission
    )

"""CreateAcls (key 30), v1-v3.

Each access rule separately: INVALID_REQUEST for one without a name or with a principal that is not TYPE:NAME, for a
cluster that is not `kafka-cluster`, and for the values of filters (ANY, MATCH), which Apache Kafka answers with
UNKNOWN_SERVER_ERROR.  A rule that exists already is created again without an error.  The rules are in force at this
broker when the answer is sent, at the others when they have followed.  Without an authorizer: SECURITY_DISABLED, with
the words of Apache Kafka.  An unknown number closes the connection.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.acl_elements import NO_AUTHORIZER, acl_of
from ottla.broker.handlers.error_text import error_text
from ottla.model.error_code import ErrorCode
from ottla.model.errors import OttlaError, RequestError
from ottla.protocol.schemas.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.runtime.loop_offload import LoopOffload
from ottla.security.acl import Acl, check_acl


async def handle(request: CreateAclsRequest, context: BrokerContext, call: Call) -> CreateAclsResponse:
    if context.acls is None:
        refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    turn = LoopOffload()
    acls: list[Acl] = []
    problems: dict[Acl, OttlaError] = {}
    for creation in request.creations:
        acl = acl_of(creation)
        acls.append(acl)
        try:
            check_acl(acl)
        except RequestError as error:
            problems[acl] = error
        await turn.pause()
    problems |= await context.acls.create([acl for acl in acls if acl not in problems])
    results: list[AclCreationResult] = []
    for acl in acls:
        results.append(_result(problems.get(acl)))
        await turn.pause()
    return CreateAclsResponse(results=results)


def _result(problem: OttlaError | None) -> AclCreationResult:
    if problem is None:
        return AclCreationResult()
    code = problem.code if isinstance(problem, RequestError) else problem.error_code
    return AclCreationResult(code, error_text(problem))

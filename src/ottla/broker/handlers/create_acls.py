"""CreateAcls (key 30), v1-v3.

There is no authorizer: each rule is refused with SECURITY_DISABLED, with the words of Apache Kafka without one.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def handle(request: CreateAclsRequest, context: BrokerContext, call: Call) -> CreateAclsResponse:
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return CreateAclsResponse(results=[refused] * len(request.creations))

"""DeleteAcls (key 31), v1-v3.

There is no authorizer: each filter is refused with SECURITY_DISABLED, with the words of Apache Kafka without one.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


async def handle(request: DeleteAclsRequest, context: BrokerContext, call: Call) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))

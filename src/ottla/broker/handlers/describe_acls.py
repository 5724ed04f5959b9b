"""DescribeAcls (key 29), v1-v3.

The access rules that a filter selects, by pattern of resources.  Without an authorizer there are none:
SECURITY_DISABLED, with the words of Apache Kafka.  An unknown number in the filter closes the connection.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.broker.handlers.acl_elements import filter_of
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.runtime.loop_offload import LoopOffload


async def handle(request: DescribeAclsRequest, context: BrokerContext, call: Call) -> DescribeAclsResponse:
    if context.acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    wanted = filter_of(request)
    turn = LoopOffload()
    resources: list[DescribeAclsResource] = []
    for pattern, entries in context.acls.index.patterns.items():
        await turn.pause()
        if not wanted.matches_pattern(pattern):
            continue
        described: list[AclDescription] = []
        for entry in entries:
            await turn.pause()
            if wanted.matches_entry(entry):
                described.append(AclDescription(entry.principal, entry.host, entry.operation, entry.permission))
        if described:
            resources.append(DescribeAclsResource(pattern.resource_type, pattern.name, pattern.pattern_type, described))
    return DescribeAclsResponse(resources=resources)

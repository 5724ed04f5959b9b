"""DescribeAcls (key 29), v1-v3.

There is no authorizer, so there are no access rules: SECURITY_DISABLED, with the words of Apache Kafka without one.
"""

from __future__ import annotations

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def handle(request: DescribeAclsRequest, context: BrokerContext, call: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )

"""DescribeCluster (key 60), v0-v2.

Answers the cluster id and the live brokers with the addresses that the caller can reach.  There is no controller: any
broker serves admin requests, and all name the live one with the lowest id.  Endpoint type 1 (brokers) only: controllers
(type 2) get MISMATCHED_ENDPOINT_TYPE, others UNSUPPORTED_ENDPOINT_TYPE (KIP-919).  Authorized operations, when asked
for, are all operations without an authorizer.

Fenced (v2, KIP-1073) is a broker that may not lead, since its session with ZooKeeper is over or may be.  Each broker
knows that of itself alone: the others that it lists are those that were registered when it last read the tree.  It
always lists itself, whether fenced brokers are included or not: it may be the only one that a client can reach.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import BrokerContext, Call
from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.describe_cluster import (
    NO_AUTHORIZED_OPERATIONS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.security.acl import CLUSTER_OPERATION_BITS

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_FENCED_FROM_VERSION: Final = 2


async def handle(request: DescribeClusterRequest, context: BrokerContext, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        if request.endpoint_type == _CONTROLLERS:
            code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller"
        else:
            code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"{request.endpoint_type} is no type of endpoint"
        return DescribeClusterResponse(error_code=code, error_message=message)
    is_fenced = call.api_version >= _FENCED_FROM_VERSION and not context.brokers.may_lead
    return DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=context.brokers.controller_id,
        brokers=[
            DescribeClusterBroker(*address, is_fenced=is_fenced and address.node_id == context.node_id)
            for address in context.brokers.addresses_for(call.local_address)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATION_BITS if request.include_cluster_authorized_operations else NO_AUTHORIZED_OPERATIONS
        ),
    )

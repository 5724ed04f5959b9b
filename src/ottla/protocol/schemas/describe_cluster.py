"""DescribeCluster (API key 60; KIP-700, KIP-919, KIP-1073)."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int8, int16, int32, nullable_string, string

# No answer about authorized operations was requested (KIP-430).
NO_AUTHORIZED_OPERATIONS: Final = -(2**31)


@message
class DescribeClusterRequest:
    """`endpoint_type`: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@message
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()
    is_fenced: bool = boolean("2+")


@message
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)

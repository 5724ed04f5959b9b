"""DescribeAcls (API key 29; KIP-140, KIP-290)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, nullable_string, string


@message
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8(default=3)  # literal
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


@message
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)  # literal
    acls: list[AclDescription] = array(AclDescription)


@message
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)

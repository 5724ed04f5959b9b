"""DeleteAcls (API key 31; KIP-140, KIP-290)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, nullable_string, string


@message
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8(default=3)  # literal
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@message
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)  # literal
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)

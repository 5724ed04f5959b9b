"""DescribeGroups (API key 15)."""

from __future__ import annotations

from typing import Final

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, nullable_string, opaque, string, string_array

# No answer about authorized operations was requested (KIP-430).
NO_AUTHORIZED_OPERATIONS: Final = -(2**31)


@message
class DescribeGroupsRequest:
    groups: list[str] = string_array()
    include_authorized_operations: bool = boolean("3+")


@message
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = nullable_string("4+", nullable="4+")
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = opaque()
    member_assignment: bytes = opaque()


@message
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = nullable_string("6+", nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=NO_AUTHORIZED_OPERATIONS)


@message
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)

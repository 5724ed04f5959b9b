"""LeaveGroup (API key 13; KIP-345)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, nullable_string, string


@message
class MemberIdentity:
    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    reason: str | None = nullable_string("5+", nullable="5+", ignorable=True)


@message
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@message
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = nullable_string(default="")
    error_code: int = int16()


@message
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")

"""JoinGroup (API key 11)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, nullable_string, opaque, string


@message
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = opaque()


@message
class JoinGroupRequest:
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+", nullable="5+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = nullable_string("8+", nullable="8+", ignorable=True)


@message
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+", nullable="5+")
    metadata: bytes = opaque()


@message
class JoinGroupResponse:
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string("7+", nullable="7+")
    protocol_name: str | None = nullable_string(nullable="7+", default="")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)

"""SyncGroup (API key 14)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, nullable_string, opaque, string


@message
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = opaque()


@message
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", nullable="3+")
    protocol_type: str | None = nullable_string("5+", nullable="5+", ignorable=True)
    protocol_name: str | None = nullable_string("5+", nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = nullable_string("5+", nullable="5+")
    protocol_name: str | None = nullable_string("5+", nullable="5+")
    assignment: bytes = opaque()

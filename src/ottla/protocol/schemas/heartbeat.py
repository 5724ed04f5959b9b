"""Heartbeat (API key 12)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import int16, int32, nullable_string, string


@message
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", nullable="3+")


@message
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()

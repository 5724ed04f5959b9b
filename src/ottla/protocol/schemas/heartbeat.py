"""Heartbeat (API key 12)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import int16, int32, nullable_string, string


@dataclass(slots=True)
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", nullable="3+")


@dataclass(slots=True)
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()

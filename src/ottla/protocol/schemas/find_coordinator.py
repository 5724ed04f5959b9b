"""FindCoordinator (API key 10; KIP-699)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, nullable_string, string, string_array


@message
class FindCoordinatorRequest:
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = string_array("4+")


@message
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default="")


@message
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = nullable_string("1-3", nullable="1-3", default="")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")

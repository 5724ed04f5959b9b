"""DeleteGroups (API key 42)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, string, string_array


@message
class DeleteGroupsRequest:
    groups_names: list[str] = string_array()


@message
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

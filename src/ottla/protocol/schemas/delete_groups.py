"""DeleteGroups (API key 42)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, int16, int32, string, string_array


@dataclass(slots=True)
class DeleteGroupsRequest:
    groups_names: list[str] = string_array()


@dataclass(slots=True)
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

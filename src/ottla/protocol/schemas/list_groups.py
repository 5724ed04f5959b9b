"""ListGroups (API key 16; KIP-518, KIP-848)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int16, int32, string, string_array


@message
class ListGroupsRequest:
    states_filter: list[str] = string_array("4+")
    types_filter: list[str] = string_array("5+")


@message
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@message
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)

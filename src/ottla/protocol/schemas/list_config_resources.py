"""ListConfigResources (API key 74; KIP-714, KIP-1142)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int8_array, int16, int32, string


@message
class ListConfigResourcesRequest:
    """`resource_types`: none is all of them; v0 requests client metrics only."""

    resource_types: list[int] = int8_array("1+")


@message
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)

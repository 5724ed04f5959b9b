"""AlterConfigs (API key 33; KIP-133)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int8, int16, int32, nullable_string, string


@message
class AlterableConfig:
    name: str = string()
    value: str | None = nullable_string()


@message
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@message
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


@message
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

"""DescribeConfigs (API key 32; KIP-133, KIP-226, KIP-569)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int8, int16, int32, nullable_string, nullable_string_array, string


@message
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_string_array()


@message
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@message
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = nullable_string()
    source: int = int8()


@message
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = nullable_string("3+", nullable="3+")


@message
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

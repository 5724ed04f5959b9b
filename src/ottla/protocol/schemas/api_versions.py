"""ApiVersions (API key 18; KIP-35, KIP-511)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, boolean, int16, int32, int64, string


@message
class ApiVersionsRequest:
    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


@message
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@message
class SupportedFeatureKey:
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


@message
class FinalizedFeatureKey:
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


@message
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)

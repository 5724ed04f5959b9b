"""CreateAcls (API key 30; KIP-140, KIP-290)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, nullable_string, string


@message
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)  # literal
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@message
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)

"""DescribeUserScramCredentials (API key 50; KIP-554)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, nullable_array, nullable_string, string


@message
class UserName:
    name: str = string()


@message
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = nullable_array(UserName)  # None, or no names: all


@message
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@message
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)

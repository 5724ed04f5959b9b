"""DescribeUserScramCredentials (API key 50; KIP-554)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, int8, int16, int32, nullable_array, nullable_string, string


@dataclass(slots=True)
class UserName:
    name: str = string()


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = nullable_array(UserName)  # None, or no names: all


@dataclass(slots=True)
class CredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)

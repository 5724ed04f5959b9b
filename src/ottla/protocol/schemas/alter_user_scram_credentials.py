"""AlterUserScramCredentials (API key 51; KIP-554)."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import array, int8, int16, int32, nullable_string, opaque, string


@dataclass(slots=True)
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@dataclass(slots=True, repr=False)
class ScramCredentialUpsertion:
    """`salted_password` is a secret, so no text form shows it."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = opaque()
    salted_password: bytes = opaque()

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion({self.name!r}, {self.mechanism}, {self.iterations})"


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)

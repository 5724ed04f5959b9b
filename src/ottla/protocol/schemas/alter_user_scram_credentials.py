"""AlterUserScramCredentials (API key 51; KIP-554)."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import array, int8, int16, int32, nullable_string, opaque, string


@message
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@message
class ScramCredentialUpsertion:
    """`salted_password` is a secret, so no text form shows it."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = opaque()
    salted_password: bytes = opaque()

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion({self.name!r}, {self.mechanism}, {self.iterations})"


@message
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@message
class AlterUserScramCredentialsResult:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)

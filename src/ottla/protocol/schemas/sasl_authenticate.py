"""SaslAuthenticate (API key 36; KIP-152, KIP-368): one message of a SASL exchange in each direction."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import int16, int64, nullable_string, opaque


@message
class SaslAuthenticateRequest:
    """`auth_bytes` may hold a password, so no text form shows them."""

    auth_bytes: bytes = opaque()

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest({len(self.auth_bytes)} bytes)"


@message
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = nullable_string()
    auth_bytes: bytes = opaque()
    session_lifetime_ms: int = int64("1+")

    def __repr__(self) -> str:
        return f"SaslAuthenticateResponse(error {self.error_code}, {len(self.auth_bytes)} bytes)"

"""SaslHandshake (API key 17; KIP-43): the mechanism of the exchange that follows."""

from __future__ import annotations

from ottla.protocol.message_class import message
from ottla.protocol.schema import int16, string, string_array


@message
class SaslHandshakeRequest:
    mechanism: str = string()


@message
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = string_array()

"""SaslHandshake (API key 17; KIP-43): the mechanism of the exchange that follows."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.schema import int16, string, string_array


@dataclass(slots=True)
class SaslHandshakeRequest:
    mechanism: str = string()


@dataclass(slots=True)
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = string_array()

"""The security protocols of a listener, as in Kafka's `security.protocol`."""

from __future__ import annotations

from enum import StrEnum

from ottla.model.errors import ConfigError


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @classmethod
    def parse(cls, text: str) -> SecurityProtocol:
        """In any case, as Kafka and librdkafka accept it; ConfigError for another text."""
        try:
            return cls(text.strip().upper())
        except ValueError:
            raise ConfigError(
                f"{text!r} is not a security protocol", hint=f"it is one of {', '.join(SecurityProtocol)}"
            ) from None

"""The SASL mechanisms that Ottla speaks, with their registered names."""

from __future__ import annotations

from enum import StrEnum

from ottla.model.errors import ConfigError


class SaslMechanism(StrEnum):
    """How clients log in."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def is_scram(self) -> bool:
        return self in (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)

    @property
    def sends_password(self) -> bool:
        """Whether the peer, and a listener between on a line without TLS, learns the secret."""
        return not self.is_scram

    @classmethod
    def parse(cls, text: str) -> SaslMechanism:
        """In any case; ConfigError for a mechanism that Ottla does not speak."""
        try:
            return cls(text.strip().upper())
        except ValueError:
            raise ConfigError(
                f"SASL mechanism {text!r} is not supported", hint=f"supported are {', '.join(SaslMechanism)}"
            ) from None

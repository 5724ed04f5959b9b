"""The message of SASL PLAIN (RFC 4616): an authorization identity, a user name and a password, with NULs between."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model.errors import WireError
from ottla.security.secret import Secret


class PlainMessage(NamedTuple):
    authorization_id: str
    username: str
    password: Secret

    def to_bytes(self) -> bytes:
        assert "\0" not in self.authorization_id + self.username + self.password.reveal(), "NUL is the separator"
        return f"{self.authorization_id}\0{self.username}\0{self.password.reveal()}".encode()

    @classmethod
    def parse(cls, data: bytes) -> PlainMessage:
        """WireError for any other form, and without a name or a password; it quotes nothing of the message."""
        try:
            parts = data.decode().split("\0")
        except UnicodeDecodeError:
            raise WireError("the message of SASL PLAIN is not UTF-8") from None
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise WireError("the message of SASL PLAIN is not an identity, a user name and a password")
        return cls(parts[0], parts[1], Secret(parts[2]))

"""The messages of SASL PLAIN (RFC 4616), an identity, a user name and a password with NULs between, and of SASL
OAUTHBEARER (RFC 7628, KIP-255): a token, with extensions (KIP-342)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

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


_SEPARATOR: Final = "\x01"
# RFC 6750, b64token.
_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_AUTH: Final = "auth"
_SCHEME: Final = re.compile(r"bearer +", re.IGNORECASE)

# What a client sends after an error in JSON, so that the server can end the exchange.
CLIENT_ACKNOWLEDGES_ERROR: Final = _SEPARATOR.encode()


class BearerMessage(NamedTuple):
    """The client's first message."""

    token: Secret
    authorization_id: str = ""
    extensions: Mapping[str, str] = {}

    def to_bytes(self) -> bytes:
        assert _TOKEN.fullmatch(self.token.reveal()), "the caller checks tokens with is_bearer_token"
        identity = f"a={_escaped(self.authorization_id)}" if self.authorization_id else ""
        pairs = [(_AUTH, f"Bearer {self.token.reveal()}"), *self.extensions.items()]
        fields = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        return f"n,{identity},{_SEPARATOR}{fields}{_SEPARATOR}".encode()

    @classmethod
    def parse(cls, data: bytes) -> BearerMessage:
        """WireError for another form; it quotes nothing of the message."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise WireError("the message of SASL OAUTHBEARER is not UTF-8") from None
        header, *fields = text.split(_SEPARATOR)
        if len(fields) < 3 or fields[-2:] != ["", ""] or "" in fields[:-2]:
            raise WireError("the message of SASL OAUTHBEARER has no token")
        pairs = [field.partition("=") for field in fields[:-2]]
        values = {name: value for name, _, value in pairs}
        if len(values) != len(pairs):
            raise WireError("the message of SASL OAUTHBEARER names a field twice")
        scheme = _SCHEME.match(values.get(_AUTH, ""))
        token = values.pop(_AUTH, "")[scheme.end() :] if scheme else ""
        if not is_bearer_token(token):
            raise WireError("the message of SASL OAUTHBEARER has no bearer token")
        if extensions_problem(values) is not None:
            raise WireError("the message of SASL OAUTHBEARER has an invalid extension")
        return cls(Secret(token), _identity(header), values)


def is_bearer_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def extensions_problem(extensions: Mapping[str, str]) -> str | None:
    """Why these extensions cannot be sent."""
    for name, value in extensions.items():
        if name == _AUTH or not _EXTENSION_NAME.fullmatch(name):
            return f"{name!r} is not a name of a SASL extension: letters, and not {_AUTH}"
        if not _EXTENSION_VALUE.fullmatch(value):
            return f"the SASL extension {name} has an empty value or control characters"
    return None


def _identity(header: str) -> str:
    """The authorization identity of a GS2 header without channel binding: `n,,` or `n,a=name,`."""
    flag, identity, rest = [*header.split(","), "", ""][:3]
    if flag != "n" or header.count(",") != 2 or rest or not (not identity or identity.startswith("a=")):
        raise WireError("the message of SASL OAUTHBEARER has no GS2 header without channel binding")
    return identity.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")

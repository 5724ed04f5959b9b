"""The server's side of SCRAM (RFC 5802), and the credentials that it stores, as Apache Kafka does.

A credential impersonates the server, and checks guesses of the password: it is as secret as a password file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from ottla.model.errors import OttlaError, WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NO_CHANNEL_BINDING,
    ClientFinal,
    ClientFirst,
    ServerFinal,
    ServerFirst,
    auth_message,
    scram_hash,
)
from ottla.security.secret import Secret

# Kafka's bounds for credentials that are made now; SASL itself has no upper one.
NEW_ITERATIONS_MAX: Final = 16_384
SALT_BYTES: Final = 24
_FIELD: Final = re.compile(r"([a-z_]+)=([^,]*)(?:,|\Z)")
_FIELDS: Final = frozenset({"salt", "stored_key", "server_key", "iterations"})


class CredentialDamaged(OttlaError):
    """Text that is no credential.  It quotes nothing of it."""


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What proves a user's password without it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations} iterations)"

    @classmethod
    def of_salted(cls, mechanism: SaslMechanism, salted_password: bytes, salt: bytes, iterations: int) -> Self:
        """Of `SaltedPassword`, which AlterUserScramCredentials carries."""
        scram = scram_hash(mechanism)
        stored_key = scram.stored_key(scram.client_key(salted_password))
        return cls(salt, stored_key, scram.server_key(salted_password), iterations)

    @classmethod
    def of_password(cls, mechanism: SaslMechanism, password: Secret, salt: bytes, iterations: int) -> Self:
        salted = scram_hash(mechanism).salted_password(password, salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    def to_text(self) -> str:
        """As Kafka writes it below `/config/users`."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `CredentialDamaged`."""
        values = dict(_FIELD.findall(text))
        if values.keys() != _FIELDS or not values["iterations"].isascii() or not values["iterations"].isdigit():
            raise CredentialDamaged("a SCRAM credential is not salt, stored_key, server_key and iterations")
        iterations = int(values["iterations"][:9])
        try:
            salt, stored_key, server_key = (
                base64.b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
        except (binascii.Error, ValueError):
            raise CredentialDamaged("a SCRAM credential has invalid base64") from None
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise CredentialDamaged(f"a SCRAM credential has {iterations} iterations")
        return cls(salt, stored_key, server_key, iterations)

    def is_of(self, mechanism: SaslMechanism, password: Secret) -> bool:
        """Whether this is the user's password; takes `iterations` hashes."""
        scram = scram_hash(mechanism)
        client_key = scram.client_key(scram.salted_password(password, self.salt, self.iterations))
        return scram.proves(scram.client_proof(client_key, b""), self.stored_key, b"")


class Found(NamedTuple):
    """A user's credential, or one that no password fits, so that an unknown user is not distinguished from a known."""

    credential: ScramCredential
    is_known: bool


# By the name of the user.
FindCredential = Callable[[str], Found]


def decoy(mechanism: SaslMechanism, secret: bytes, username: str, iterations: int = ITERATIONS_MIN) -> Found:
    """For a user without a credential: the same salt for the same name each time, as a real one has.

    `iterations` must be those of real ones, or a challenge would show which names exist.
    """
    scram = scram_hash(mechanism)
    salt = scram.hmac(secret, b"salt" + username.encode())[:SALT_BYTES]
    key = scram.hmac(secret, b"key" + username.encode())
    return Found(ScramCredential(salt, key, key, iterations), False)


@dataclass(slots=True)
class ScramServer:
    """One login: `first` with the client's first message, then `final` with its last.  Both raise `WireError` for a
    message that is none, or that belongs to another exchange."""

    mechanism: SaslMechanism
    find: FindCredential
    # Random and printable, without a comma.
    nonce: str
    _client_first: ClientFirst | None = field(default=None, init=False)
    _server_first: ServerFirst | None = field(default=None, init=False)
    _found: Found | None = field(default=None, init=False, repr=False)

    @property
    def username(self) -> str:
        """What the client claims; empty before its first message."""
        return "" if self._client_first is None else self._client_first.username

    def first(self, message: bytes) -> bytes:
        """The challenge."""
        client_first = ClientFirst.parse(message)
        if client_first.authorization_id not in ("", client_first.username):
            raise WireError("the authorization identity is another user's")
        if "tokenauth" in client_first.extensions:
            raise WireError("delegation tokens are not offered")
        self._client_first = client_first
        self._found = self.find(client_first.username)
        credential = self._found.credential
        self._server_first = ServerFirst(client_first.nonce + self.nonce, credential.salt, credential.iterations)
        return self._server_first.to_bytes()

    def final(self, message: bytes) -> tuple[str, bytes] | None:
        """The user and the last message, which proves the server; None: the proof is wrong, or the user unknown."""
        client_first, server_first, found = self._client_first, self._server_first, self._found
        assert client_first is not None
        assert server_first is not None
        assert found is not None
        client_final = ClientFinal.parse(message)
        # librdkafka before 2.6.1 writes its own nonce in front of the combined one (confluentinc/librdkafka#4895).
        # The server's part must be there as a whole in both forms, at the end: no other nonce is accepted.
        if client_final.nonce not in (server_first.nonce, client_first.nonce + server_first.nonce):
            raise WireError("the nonce is not that of the challenge")
        if client_final.channel_binding != NO_CHANNEL_BINDING:
            raise WireError("channel binding is not offered")
        scram, credential = scram_hash(self.mechanism), found.credential
        signed = auth_message(client_first, server_first, client_final)
        if not scram.proves(client_final.proof, credential.stored_key, signed) or not found.is_known:
            return None
        signature = scram.server_signature(credential.server_key, signed)
        return client_first.username, ServerFinal(signature).to_bytes()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()

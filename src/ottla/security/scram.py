"""SCRAM (RFC 5802, RFC 7677): its formulas, its four messages and the client's side of an exchange.

Names and passwords are UTF-8 without SASLprep, as in Apache Kafka and librdkafka: credentials that Kafka's tools
store, or send in AlterUserScramCredentials, are made so, and a prepared password would not match them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from ottla.model.errors import OttlaError, WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret

ITERATIONS_MIN: Final = 4_096
# Kafka's own limit for new credentials is 16,384.  A server's number decides how long a client computes: a million
# iterations take about a second.
ITERATIONS_MAX: Final = 1_000_000
# base64 of the GS2 header `n,,`: no channel binding.
NO_CHANNEL_BINDING: Final = "biws"

_HASHES: Final = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
# Printable ASCII without the comma.
_NONCE: Final = re.compile(r"[\x21-\x2B\x2D-\x7E]+")
_POSITIVE: Final = re.compile(r"[1-9][0-9]{0,8}")
_NAME: Final = re.compile(r"(?:[^=,\0]|=2C|=3D)+")


class ScramRejected(OttlaError):
    """The server ended the exchange with an error (`e=`)."""


class ServerNotAuthentic(OttlaError):
    """The server's signature proves that it does not have the user's credentials."""

    hint = "the peer is not the broker that stores this user's credentials: check the address, and use TLS"


@dataclass(frozen=True, slots=True)
class ScramHash:
    """The formulas of one mechanism."""

    name: str

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.name)

    def salted_password(self, password: Secret, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(self.name, password.reveal().encode(), salt, iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Client Key")

    def stored_key(self, client_key: bytes) -> bytes:
        return self.digest(client_key)

    def server_key(self, salted_password: bytes) -> bytes:
        return self.hmac(salted_password, b"Server Key")

    def client_proof(self, client_key: bytes, auth_message: bytes) -> bytes:
        return _xor(client_key, self.hmac(self.stored_key(client_key), auth_message))

    def proves(self, proof: bytes, stored_key: bytes, auth_message: bytes) -> bool:
        """Whether a client with the key of `stored_key` made this proof; in constant time."""
        signature = self.hmac(stored_key, auth_message)
        if len(proof) != len(signature):
            return False
        return hmac.compare_digest(self.stored_key(_xor(proof, signature)), stored_key)

    def server_signature(self, server_key: bytes, auth_message: bytes) -> bytes:
        return self.hmac(server_key, auth_message)


def scram_hash(mechanism: SaslMechanism) -> ScramHash:
    return ScramHash(_HASHES[mechanism])


class ClientFirst(NamedTuple):
    """`n,a=authzid,n=user,r=nonce`.  `bare` is the text without the GS2 header, which the proofs cover."""

    username: str
    nonce: str
    authorization_id: str = ""
    extensions: str = ""

    @property
    def bare(self) -> str:
        return f"n={escaped_name(self.username)},r={self.nonce}{self.extensions}"

    def to_bytes(self) -> bytes:
        identity = f"a={escaped_name(self.authorization_id)}" if self.authorization_id else ""
        return f"n,{identity},{self.bare}".encode()

    @classmethod
    def parse(cls, data: bytes) -> ClientFirst:
        parts = _text(data).split(",")
        if len(parts) < 4 or parts[0] != "n":
            raise WireError("SCRAM's first message has no GS2 header without channel binding")
        identity = _value(parts[1], "a") if parts[1] else ""
        name, nonce = _value(parts[2], "n"), _nonce(_value(parts[3], "r"))
        return cls(_plain_name(name), nonce, _plain_name(identity) if identity else "", _extensions(parts[4:]))


class ServerFirst(NamedTuple):
    """`r=nonce,s=salt,i=iterations`."""

    nonce: str
    salt: bytes
    iterations: int
    extensions: str = ""

    @property
    def text(self) -> str:
        return f"r={self.nonce},s={_base64(self.salt)},i={self.iterations}{self.extensions}"

    def to_bytes(self) -> bytes:
        return self.text.encode()

    @classmethod
    def parse(cls, data: bytes) -> ServerFirst:
        parts = _text(data).split(",")
        if len(parts) < 3:
            raise WireError("SCRAM's challenge is not a nonce, a salt and a number of iterations")
        iterations = _value(parts[2], "i")
        if not _POSITIVE.fullmatch(iterations):
            raise WireError("SCRAM's challenge has no number of iterations")
        salt = _bytes(_value(parts[1], "s"))
        if not salt:
            raise WireError("SCRAM's challenge has an empty salt")
        return cls(_nonce(_value(parts[0], "r")), salt, int(iterations), _extensions(parts[3:]))


class ClientFinal(NamedTuple):
    """`c=channel binding,r=nonce,p=proof`."""

    nonce: str
    proof: bytes
    channel_binding: str = NO_CHANNEL_BINDING
    extensions: str = ""

    @property
    def without_proof(self) -> str:
        return f"c={self.channel_binding},r={self.nonce}{self.extensions}"

    def to_bytes(self) -> bytes:
        return f"{self.without_proof},p={_base64(self.proof)}".encode()

    @classmethod
    def parse(cls, data: bytes) -> ClientFinal:
        parts = _text(data).split(",")
        if len(parts) < 3:
            raise WireError("SCRAM's last message of a client is not a channel binding, a nonce and a proof")
        proof = _bytes(_value(parts[-1], "p"))
        binding, nonce = _value(parts[0], "c"), _nonce(_value(parts[1], "r"))
        return cls(nonce, proof, binding, _extensions(parts[2:-1]))


class ServerFinal(NamedTuple):
    """`v=signature`, or `e=error` of a server that refused the proof."""

    signature: bytes = b""
    error: str = ""

    def to_bytes(self) -> bytes:
        return (f"e={self.error}" if self.error else f"v={_base64(self.signature)}").encode()

    @classmethod
    def parse(cls, data: bytes) -> ServerFinal:
        first = _text(data).split(",")[0]
        if first.startswith("e="):
            return cls(error=_value(first, "e") or "other-error")
        return cls(signature=_bytes(_value(first, "v")))


def auth_message(client_first: ClientFirst, server_first: ServerFirst, client_final: ClientFinal) -> bytes:
    """What both proofs cover."""
    return f"{client_first.bare},{server_first.text},{client_final.without_proof}".encode()


@dataclass(slots=True)
class ScramClient:
    """One login: `first`, then `final` with the server's challenge, then `verify` with its last message.

    `nonce` is random and printable, without a comma.  `extensions` follow the nonce, as `,name=value`.
    """

    mechanism: SaslMechanism
    username: str
    password: Secret
    nonce: str
    extensions: str = ""
    _server_signature: bytes = field(default=b"", init=False, repr=False)

    NONCE_BYTES: ClassVar[int] = 24

    def first(self) -> bytes:
        return self._first.to_bytes()

    def final(self, challenge: bytes) -> bytes:
        """WireError when the challenge is none, or would weaken the exchange."""
        server_first = ServerFirst.parse(challenge)
        if not server_first.nonce.startswith(self.nonce) or server_first.nonce == self.nonce:
            raise WireError("SCRAM's challenge does not continue the client's nonce")
        if not ITERATIONS_MIN <= server_first.iterations <= ITERATIONS_MAX:
            raise WireError(
                f"SCRAM's challenge demands {server_first.iterations} iterations;"
                f" accepted are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        scram = scram_hash(self.mechanism)
        salted = scram.salted_password(self.password, server_first.salt, server_first.iterations)
        final = ClientFinal(server_first.nonce, b"")
        message = auth_message(self._first, server_first, final)
        self._server_signature = scram.server_signature(scram.server_key(salted), message)
        return final._replace(proof=scram.client_proof(scram.client_key(salted), message)).to_bytes()

    def verify(self, last: bytes) -> None:
        """ScramRejected when the server refused the proof, ServerNotAuthentic when its own is wrong."""
        assert self._server_signature, "the server's signature is computed by `final`"
        server_final = ServerFinal.parse(last)
        if server_final.error:
            raise ScramRejected(f"the server ended SCRAM with {server_final.error!r}")
        if not hmac.compare_digest(server_final.signature, self._server_signature):
            raise ServerNotAuthentic("the server's SCRAM signature is wrong")

    @property
    def _first(self) -> ClientFirst:
        return ClientFirst(self.username, self.nonce, extensions=self.extensions)


def escaped_name(name: str) -> str:
    """A name as `saslname`: the comma and the equal sign are escaped."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _plain_name(escaped: str) -> str:
    if not _NAME.fullmatch(escaped):
        raise WireError("SCRAM's message has an invalid name")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WireError("SCRAM's message is not UTF-8") from None


def _value(part: str, name: str) -> str:
    if not part.startswith(f"{name}="):
        raise WireError(f"SCRAM's message has no attribute {name!r} where it must be")
    return part[2:]


def _nonce(text: str) -> str:
    if not _NONCE.fullmatch(text):
        raise WireError("SCRAM's message has an invalid nonce")
    return text


def _extensions(parts: list[str]) -> str:
    """Kept as text, because the proofs cover them.  `m` would have to be understood (RFC 5802, 5.1)."""
    for part in parts:
        if len(part) < 2 or not part[0].isascii() or not part[0].isalpha() or "=" not in part or part[:2] == "m=":
            raise WireError("SCRAM's message has an extension that is not understood")
    return "".join(f",{part}" for part in parts)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise WireError("SCRAM's message has invalid base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))

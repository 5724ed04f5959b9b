"""The token by which a broker joins a secured cluster: a text, of which only a passphrase opens the secrets.

    -----BEGIN OTTLA JOIN TOKEN-----
    Version: 1
    Cluster: <cluster id>
    Host: <the host name in the broker's certificate>
    Expires: 2026-11-27T21:30:00Z

    <base64, in lines of 64: nonce (12 bytes), AES-256-GCM of the content with its tag (16), checksum (8)>
    -----END OTTLA JOIN TOKEN-----

The lines of the head are readable without the passphrase, and authenticated with the content: a changed one opens with
no passphrase.  The checksum, of SHA-256 over head, nonce and ciphertext, distinguishes damage from a wrong passphrase.
The content is JSON.  The key is HKDF-SHA256 of the passphrase, which has 160 random bits: guesses need no slow hash.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ottla.model.errors import OttlaError
from ottla.model.limits import KIB
from ottla.security.secret import Secret

TOKEN_BYTES_MAX: Final = 256 * KIB
NONCE_BYTES: Final = 12
PASSPHRASE_BYTES: Final = 20
_VERSION: Final = "1"
_TAG_BYTES: Final = 16
_CHECKSUM_BYTES: Final = 8
_LINE_LENGTH: Final = 64
_GROUP_LENGTH: Final = 4
_FIRST_LINE: Final = "-----BEGIN OTTLA JOIN TOKEN-----"
_LAST_LINE: Final = "-----END OTTLA JOIN TOKEN-----"
_NAMES: Final = ("Version", "Cluster", "Host", "Expires")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_KEY_PURPOSE: Final = b"ottla join token 1"
_NOT_OF_PASSPHRASE: Final = re.compile(r"[\s-]+")


class TokenRefused(OttlaError):
    """A token that lets no broker join: damaged, expired, for another host or cluster, or used before."""


class TokenHead(NamedTuple):
    """What everyone can read of a token.  `expires_ms` is since 1970, in whole seconds."""

    cluster_id: str
    host: str
    expires_ms: int

    @property
    def expires_text(self) -> str:
        return datetime.fromtimestamp(self.expires_ms / 1_000, UTC).strftime(_TIME)

    def require_time(self, now_ms: int) -> None:
        """Raises `TokenRefused` for a token that has expired."""
        if now_ms >= self.expires_ms:
            raise TokenRefused(
                f"the token expired at {self.expires_text}",
                hint="make another with `ottla secure token`; if it is newer than that, check this machine's clock",
            )


class JoinToken(NamedTuple):
    """`settings` are those of the broker, without the ones in `files`: the text of each file by the setting that names
    the file.

    `user` is the user as which it logs in to the other brokers, if it has one for itself, and `principal` the one that
    needs the rights of a broker.
    """

    head: TokenHead
    node_id: int | None
    settings: Mapping[str, str]
    files: Mapping[str, str]
    user: str | None = None
    principal: str | None = None

    def __repr__(self) -> str:
        return f"JoinToken({self.head!r}, content hidden)"

    def sealed(self, passphrase: Secret, nonce: bytes) -> str:
        """The text.  `passphrase`: as `passphrase_of` makes it; a nonce may be used once for each."""
        head = _head_text(self.head)
        content = {
            "node_id": self.node_id,
            "settings": dict(self.settings),
            "files": dict(self.files),
            "user": self.user,
            "principal": self.principal,
        }
        plain = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        sealed = nonce + AESGCM(_key(passphrase)).encrypt(nonce, plain, head.encode())
        body = base64.b64encode(sealed + _checksum(head, sealed)).decode()
        lines = [body[at : at + _LINE_LENGTH] for at in range(0, len(body), _LINE_LENGTH)]
        return "\n".join([_FIRST_LINE, head, "", *lines, _LAST_LINE, ""])


class SealedToken(NamedTuple):
    """A token whose content is not open yet."""

    head: TokenHead
    body: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `TokenRefused`."""
        lines = [line.strip() for line in text.strip().splitlines()]
        if lines[:1] != [_FIRST_LINE]:
            raise TokenRefused("this is not a token", hint=f"it starts with the line {_FIRST_LINE}")
        if not text.isascii():
            raise _damaged("it has characters that no token has")
        if lines[-1] != _LAST_LINE or "" not in lines:
            raise _damaged("its end is missing")
        blank = lines.index("")
        head = _parsed_head(lines[1:blank])
        try:
            data = base64.b64decode("".join(lines[blank + 1 : -1]), validate=True)
        except binascii.Error:
            raise _damaged("its content is not base64") from None
        sealed, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if len(sealed) < NONCE_BYTES + _TAG_BYTES or checksum != _checksum(_head_text(head), sealed):
            raise _damaged("its checksum is wrong")
        return cls(head, sealed)

    def opened(self, passphrase: Secret) -> JoinToken:
        """Raises `TokenRefused`."""
        nonce, ciphertext = self.body[:NONCE_BYTES], self.body[NONCE_BYTES:]
        try:
            plain = AESGCM(_key(passphrase)).decrypt(nonce, ciphertext, _head_text(self.head).encode())
        except InvalidTag:
            raise TokenRefused(
                "the passphrase does not open the token",
                hint="`ottla secure token` showed it once; without it make another token",
            ) from None
        content = json.loads(plain)
        return JoinToken(
            self.head,
            content["node_id"],
            content["settings"],
            content["files"],
            content["user"],
            content["principal"],
        )


def passphrase_of(random_bytes: bytes) -> Secret:
    """In groups of letters and digits that a person can copy."""
    assert len(random_bytes) == PASSPHRASE_BYTES
    text = base64.b32encode(random_bytes).decode()
    return Secret("-".join(text[at : at + _GROUP_LENGTH] for at in range(0, len(text), _GROUP_LENGTH)))


def _key(passphrase: Secret) -> bytes:
    """Capitals, blanks and dashes do not count."""
    material = _NOT_OF_PASSPHRASE.sub("", passphrase.reveal()).upper().encode(errors="replace")
    return HKDF(hashes.SHA256(), length=32, salt=None, info=_KEY_PURPOSE).derive(material)


def _checksum(head: str, sealed: bytes) -> bytes:
    return hashlib.sha256(head.encode() + sealed).digest()[:_CHECKSUM_BYTES]


def _head_text(head: TokenHead) -> str:
    texts = (_VERSION, head.cluster_id, head.host, head.expires_text)
    assert not any(set(text) & set("\r\n") for text in texts)
    return "\n".join(f"{name}: {text}" for name, text in zip(_NAMES, texts, strict=True))


def _parsed_head(lines: list[str]) -> TokenHead:
    pairs = [line.partition(": ") for line in lines]
    if pairs and pairs[0][0] == _NAMES[0] and pairs[0][2] != _VERSION:
        raise TokenRefused(
            f"the token has version {pairs[0][2]}, and this Ottla knows version {_VERSION}",
            hint="use the same release on both machines",
        )
    if tuple(name for name, _, _ in pairs) != _NAMES:
        raise _damaged(f"its head is not {', '.join(_NAMES)}")
    _, cluster_id, host, expires = (text for _, _, text in pairs)
    try:
        # It must be written as it was read: the head is authenticated as text.
        expires_ms = int(datetime.strptime(expires, _TIME).replace(tzinfo=UTC).timestamp()) * 1_000
        if datetime.fromtimestamp(expires_ms / 1_000, UTC).strftime(_TIME) != expires:
            raise ValueError(expires)
    except ValueError:
        raise _damaged("its time of expiry is not a time") from None
    return TokenHead(cluster_id, host, expires_ms)


def _damaged(problem: str) -> TokenRefused:
    return TokenRefused(f"the token is damaged: {problem}", hint="copy the whole file, or make another token")

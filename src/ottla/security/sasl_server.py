"""The server's side of a SASL login: handshakes and tokens in, replies out.  Pure: the caller owns frames and time.

A login is a handshake, which names the mechanism, then tokens until the exchange succeeds or fails.  An unknown user, a
wrong password and a malformed message fail with the same text, and the connection ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ottla.model.error_code import ErrorCode
from ottla.model.errors import WireError
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_messages import BearerMessage, PlainMessage
from ottla.security.scram_server import FindCredential, ScramServer
from ottla.security.secret import Secret

_INVALID_TOKEN: Final = json.dumps({"status": "invalid_token"}).encode()


class Continued(NamedTuple):
    """The exchange continues with the client's next token."""

    token: bytes


class Authenticated(NamedTuple):
    """The user has proved its name.  `lifetime_ms`: of its token; None: it does not expire."""

    username: str
    token: bytes = b""
    lifetime_ms: int | None = None


class Rejected(NamedTuple):
    """The reason is for the log; the client gets none.  `username` is the one that the client claims."""

    reason: str
    username: str = ""


Step = Continued | Authenticated | Rejected


class Exchange(Protocol):
    """One exchange of a mechanism."""

    def step(self, token: bytes) -> Step:
        """Raises `WireError` for a token that is no message of the mechanism."""
        ...


class PlainExchange:
    """`is_password` compares in constant time."""

    def __init__(self, is_password: Callable[[str, Secret], bool]) -> None:
        self._is_password: Final = is_password

    def step(self, token: bytes) -> Step:
        message = PlainMessage.parse(token)
        if message.authorization_id not in ("", message.username):
            return Rejected("the authorization identity is another user's", message.username)
        if not self._is_password(message.username, message.password):
            return Rejected("unknown user or wrong password", message.username)
        return Authenticated(message.username)


class ScramExchange:
    def __init__(self, mechanism: SaslMechanism, find: FindCredential, nonce: str) -> None:
        self._scram: Final = ScramServer(mechanism, find, nonce)
        self._is_challenged = False

    def step(self, token: bytes) -> Step:
        if not self._is_challenged:
            challenge = self._scram.first(token)
            self._is_challenged = True
            return Continued(challenge)
        proved = self._scram.final(token)
        if proved is None:
            return Rejected("unknown user or wrong password", self._scram.username)
        return Authenticated(*proved)


class VerifiedToken(NamedTuple):
    subject: str
    lifetime_ms: int


class BearerExchange:
    """`verify` raises `WireError` with the reason for the log."""

    def __init__(self, verify: Callable[[Secret], VerifiedToken]) -> None:
        self._verify: Final = verify
        self._refusal: Rejected | None = None

    def step(self, token: bytes) -> Step:
        if self._refusal is not None:
            # The client has acknowledged the error.
            return self._refusal
        message = BearerMessage.parse(token)
        try:
            verified = self._verify(message.token)
        except WireError as error:
            self._refusal = Rejected(str(error))
            return Continued(_INVALID_TOKEN)
        if message.authorization_id not in ("", verified.subject):
            return Rejected("the authorization identity is another user's", verified.subject)
        return Authenticated(verified.subject, b"", verified.lifetime_ms)


class HandshakeReply(NamedTuple):
    error: ErrorCode
    mechanisms: Sequence[str]


class LoginRules(NamedTuple):
    """What a listener offers: an exchange of each enabled mechanism, and how long a login is valid (0: always)."""

    exchanges: Mapping[SaslMechanism, Callable[[], Exchange]]
    reauthentication_ms_max: int = 0


class SaslLogin:
    """The logins of one connection: the first one, and those by which its user stays logged in (KIP-368)."""

    def __init__(self, rules: LoginRules) -> None:
        self._rules: Final = rules
        self._exchange: Exchange | None = None
        self._mechanism: SaslMechanism | None = None
        # Of the present login.
        self._user: tuple[str, SaslMechanism] | None = None
        self._expires_ms: int | None = None
        self._lifetime_ms = 0
        self._has_bare_tokens = False

    @property
    def username(self) -> str | None:
        """The user that is logged in."""
        return None if self._user is None else self._user[0]

    @property
    def mechanism(self) -> SaslMechanism | None:
        """Of the exchange in progress, or the last one."""
        return self._mechanism

    @property
    def is_in_exchange(self) -> bool:
        return self._exchange is not None

    @property
    def has_bare_tokens(self) -> bool:
        """Whether the next frame is a token without a request's head: after version 0 of the handshake."""
        return self._has_bare_tokens and self._exchange is not None

    @property
    def lifetime_ms(self) -> int:
        """Of the login, from when it succeeded; 0: as long as the connection."""
        return self._lifetime_ms

    @property
    def expires_ms(self) -> int | None:
        """The time at which requests are no longer accepted; None: never."""
        return self._expires_ms

    def handshake(self, version: int, mechanism: str) -> HandshakeReply:
        """Start an exchange.  After any error the connection must be closed."""
        offered = sorted(self._rules.exchanges)
        if self._exchange is not None or (self._user is not None and version == 0):
            return HandshakeReply(ErrorCode.ILLEGAL_SASL_STATE, offered)
        found = next((each for each in offered if each == mechanism), None)
        if found is None:
            return HandshakeReply(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
        self._mechanism, self._exchange = found, self._rules.exchanges[found]()
        self._has_bare_tokens = version == 0
        return HandshakeReply(ErrorCode.NONE, offered)

    def authenticate(self, token: bytes, now_ms: int) -> Step:
        """Continue the exchange.  After `Rejected` the connection must be closed."""
        assert self._exchange is not None, "the caller checks is_in_exchange"
        assert self._mechanism is not None
        try:
            step = self._exchange.step(token)
        except WireError as error:
            step = Rejected(str(error))
        if isinstance(step, Authenticated):
            user = step.username, self._mechanism
            if self._user not in (None, user):
                step = Rejected("a login was renewed by another user or mechanism", step.username)
            elif step.lifetime_ms is not None and step.lifetime_ms <= 0:
                step = Rejected("the token has expired", step.username)
        if not isinstance(step, Continued):
            self._exchange = None
        if isinstance(step, Authenticated):
            self._user = user
            bounds = [each for each in (self._rules.reauthentication_ms_max, step.lifetime_ms) if each]
            self._lifetime_ms = min(bounds, default=0)
            self._expires_ms = now_ms + self._lifetime_ms if bounds else None
        return step

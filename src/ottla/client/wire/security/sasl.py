"""The login of a connection: a mechanism's messages, and when the broker wants another login (KIP-368)."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Final, Protocol

from ottla.client.wire.address import Address
from ottla.client.wire.dialogue import Dialogue, Question
from ottla.client.wire.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClientError,
    ConnectionLost,
    ListenerMismatch,
    UnsupportedByBroker,
    error_code_of,
)
from ottla.client.wire.security.settings import Login, PasswordLogin, TokenLogin
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, OttlaError
from ottla.observe.text import safe_line
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.runtime.clock import Clock
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_messages import CLIENT_ACKNOWLEDGES_ERROR, BearerMessage, PlainMessage, is_bearer_token
from ottla.security.scram import ScramClient, ScramRejected
from ottla.security.secret import Secret

# The part of a session's life after which the client logs in again; random, so that clients do not do so in step.  As
# Java's clients.
_RENEWED_AFTER: Final = (0.85, 0.95)
# A mechanism has at most two rounds, and an error's acknowledgement.
_ROUNDS_MAX: Final = 4
_ERROR_TEXT_MAX: Final = 300
_NO_SASL_HINT: Final = (
    "the listener has no SASL: set security.protocol to PLAINTEXT or SSL, or use the address of a listener with SASL"
)
_CLOSED_HINT: Final = "some brokers refuse a login so: check the name and the secret, and the broker's log"


class Exchange(Protocol):
    """The client's side of one login by one mechanism."""

    def first(self) -> bytes: ...

    def reply(self, challenge: bytes) -> bytes | None:
        """The next message; None when the login is complete.  Raises OttlaError to end it."""
        ...


class _Plain:
    def __init__(self, username: str, password: Secret) -> None:
        self._message = PlainMessage("", username, password)

    def first(self) -> bytes:
        return self._message.to_bytes()

    def reply(self, challenge: bytes) -> None:
        return None


class _Scram:
    def __init__(self, client: ScramClient) -> None:
        self._client = client
        self._has_proved = False

    def first(self) -> bytes:
        return self._client.first()

    def reply(self, challenge: bytes) -> bytes | None:
        if self._has_proved:
            self._client.verify(challenge)
            return None
        self._has_proved = True
        return self._client.final(challenge)


class _Bearer:
    def __init__(self, message: BearerMessage) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message.to_bytes()

    def reply(self, challenge: bytes) -> bytes | None:
        """A challenge is an error, which the broker reports in full after its acknowledgement."""
        return CLIENT_ACKNOWLEDGES_ERROR if challenge else None


def exchange_of(login: Login) -> Exchange:
    """Raises ConfigError and ClientError when there is no password or no token."""
    if isinstance(login, TokenLogin):
        token = login.source()
        if not isinstance(token, str) or not is_bearer_token(token):
            raise AuthenticationFailed(
                "the source of tokens returned no bearer token", hint="it returns the text of a token, such as a JWT"
            )
        return _Bearer(BearerMessage(Secret(token), extensions=login.extensions))
    password = Secret(login.password.reveal())
    if not password or "\0" in password.reveal():
        raise AuthenticationFailed(f"the password of {login.username} is empty", hint="see sasl.password.file")
    if login.mechanism is SaslMechanism.PLAIN:
        return _Plain(login.username, password)
    nonce = secrets.token_urlsafe(ScramClient.NONCE_BYTES)
    return _Scram(ScramClient(login.mechanism, login.username, password, nonce))


class SaslSession:
    """The logins of one connection.  `due_ms` is when the next one is due, on the clock that runs while a machine is
    suspended; None: never."""

    def __init__(
        self, login: Login, peer: Address, clock: Clock, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self.due_ms: float | None = None
        self._login = login
        self._peer = peer
        self._clock = clock
        self._uniform = uniform

    @property
    def is_due(self) -> bool:
        return self.due_ms is not None and self._clock.boottime_ms() >= self.due_ms

    def log_in(self) -> Dialogue:
        """Raises AuthenticationFailed, ListenerMismatch and other ClientErrors: the connection must be closed then."""
        self.due_ms = None  # it is under way
        try:
            exchange = exchange_of(self._login)
        except ConfigError as error:  # of a file that cannot be read now, or a missing package
            raise AuthenticationFailed(str(error), hint=error.hint) from error
        yield from self._choose_mechanism()
        message: bytes | None = exchange.first()
        for _ in range(_ROUNDS_MAX):
            assert message is not None
            try:
                response = yield Question(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(message))
            except ConnectionLost as error:
                raise ConnectionLost(
                    f"{self._peer} closed the connection during the login of {self._login}", hint=_CLOSED_HINT
                ) from error
            assert isinstance(response, SaslAuthenticateResponse)
            if response.error_code:
                raise self._refused(response)
            try:
                message = exchange.reply(response.auth_bytes)
            except ScramRejected as error:
                raise self._failed(str(error)) from error
            except OttlaError as error:
                raise self._failed(str(error), hint=error.hint or "is the peer a Kafka broker?") from error
            if message is None:
                self._complete(response.session_lifetime_ms)
                return
        raise self._failed("the exchange has no end", hint="is the peer a Kafka broker?")

    def _choose_mechanism(self) -> Dialogue:
        mechanism = self._login.mechanism
        try:
            response = yield Question(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism), at_least=1)
        except UnsupportedByBroker as error:
            raise ListenerMismatch(f"{self._peer} offers no SASL", hint=_NO_SASL_HINT) from error
        assert isinstance(response, SaslHandshakeResponse)
        code = error_code_of(response.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(safe_line(name[:_ERROR_TEXT_MAX]) for name in response.mechanisms) or "none"
            raise AuthenticationFailed(
                f"{self._peer} does not accept SASL {mechanism}; it accepts {enabled}",
                hint="set sasl.mechanism to one of these, or add this one to the broker's sasl.enabled.mechanisms",
            )
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise ListenerMismatch(f"{self._peer} accepts no SASL login", hint=_NO_SASL_HINT)
        if code is not ErrorCode.NONE:
            raise BrokerRefused(code, f"SASL {mechanism} at {self._peer}")

    def _complete(self, lifetime_ms: int) -> None:
        if lifetime_ms > 0:
            self.due_ms = self._clock.boottime_ms() + lifetime_ms * self._uniform(*_RENEWED_AFTER)
        else:
            self.due_ms = None

    def _refused(self, response: SaslAuthenticateResponse) -> ClientError:
        code = error_code_of(response.error_code)
        detail = safe_line((response.error_message or code.name)[:_ERROR_TEXT_MAX])
        if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            return self._failed(detail)
        return BrokerRefused(code, f"the login at {self._peer}", detail)

    def _failed(self, reason: str, *, hint: str | None = None) -> AuthenticationFailed:
        if hint is None and not isinstance(self._login, PasswordLogin):
            hint = "is the token valid now, and issued for this cluster (issuer, audience, scope)?"
        return AuthenticationFailed(f"{self._peer} refused {self._login}: {reason}", hint=hint)

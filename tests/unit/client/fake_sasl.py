"""A broker's side of SASL logins, for the client's tests: in memory, or below the TLS of `secure_fake_broker`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.model.error_code import ErrorCode
from ottla.protocol.schemas.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.schemas.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_messages import CLIENT_ACKNOWLEDGES_ERROR, BearerMessage, PlainMessage
from ottla.security.scram import ClientFinal, ClientFirst, ServerFinal, ServerFirst, auth_message, scram_hash
from ottla.security.secret import Secret

USERNAME: Final = "alice"
PASSWORD: Final = "geheim-17"
TOKEN: Final = "header.payload.signature"
SALT: Final = b"0123456789abcdef"
REFUSED: Final = "Authentication failed during authentication due to invalid credentials"


class FakeSasl:
    """Knows one user and one token.  `challenged` changes a challenge; `signed` the server's last message."""

    def __init__(
        self,
        mechanisms: Sequence[SaslMechanism] = tuple(SaslMechanism),
        *,
        session_lifetime_ms: int = 0,
        challenged: Callable[[bytes], bytes] = lambda challenge: challenge,
        signed: Callable[[bytes], bytes] = lambda last: last,
    ) -> None:
        self.mechanisms = list(mechanisms)
        self.session_lifetime_ms = session_lifetime_ms
        self.password = PASSWORD
        self.token = TOKEN
        self.challenged = challenged
        self.signed = signed
        self.logins: list[SaslMechanism] = []
        self.extensions: list[dict[str, str]] = []
        self._chosen: dict[object, SaslMechanism] = {}
        self._scram: dict[object, tuple[ClientFirst, ServerFirst]] = {}

    def handshake(self, connection: object, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        if request.mechanism not in self.mechanisms:
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, [str(each) for each in self.mechanisms])
        self._chosen[connection] = SaslMechanism(request.mechanism)
        return SaslHandshakeResponse(ErrorCode.NONE, [str(each) for each in self.mechanisms])

    def authenticate(self, connection: object, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        mechanism = self._chosen.get(connection)
        if mechanism is None:
            return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "no handshake")
        if mechanism.is_scram:
            return self._scram_round(connection, mechanism, request.auth_bytes)
        if mechanism is SaslMechanism.PLAIN:
            _, username, password = PlainMessage.parse(request.auth_bytes)
            return self._ended(mechanism, username == USERNAME and password.reveal() == self.password)
        if request.auth_bytes == CLIENT_ACKNOWLEDGES_ERROR:
            return self._ended(mechanism, is_right=False)
        message = BearerMessage.parse(request.auth_bytes)
        if message.token.reveal() != self.token:
            return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
        self.extensions.append(dict(message.extensions))
        return self._ended(mechanism, is_right=True)

    def _ended(self, mechanism: SaslMechanism, is_right: bool, last: bytes = b"") -> SaslAuthenticateResponse:
        if not is_right:
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED)
        self.logins.append(mechanism)
        return SaslAuthenticateResponse(auth_bytes=last, session_lifetime_ms=self.session_lifetime_ms)

    def _scram_round(self, connection: object, mechanism: SaslMechanism, data: bytes) -> SaslAuthenticateResponse:
        scram = scram_hash(mechanism)
        started = self._scram.pop(connection, None)
        if started is None:
            first = ClientFirst.parse(data)
            challenge = ServerFirst(first.nonce + "server", SALT, 4096)
            self._scram[connection] = first, challenge
            return SaslAuthenticateResponse(auth_bytes=self.challenged(challenge.to_bytes()))
        first, challenge = started
        final = ClientFinal.parse(data)
        message = auth_message(first, challenge, final)
        salted = scram.salted_password(Secret(self.password), SALT, 4096)
        stored_key = scram.stored_key(scram.client_key(salted))
        is_right = first.username == USERNAME and scram.proves(final.proof, stored_key, message)
        last = ServerFinal(scram.server_signature(scram.server_key(salted), message)).to_bytes()
        return self._ended(mechanism, is_right, self.signed(last))

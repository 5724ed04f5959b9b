"""The logins of a server for HTTP: passwords are verified in threads, tokens and certificates at once.

The rules are those of `security/http_access.py`; this module adds the threads and the time that a check takes, and
reports to the security log.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, NamedTuple, NoReturn, Protocol

from ottla.broker.net.security_log import TEXT_LENGTH_MAX, FailedLogin, HttpChange, HttpDenial, SecurityLog
from ottla.broker.security.credentials import ScramCredentials
from ottla.coordination.configs import ConfigEntity, ConfigsView
from ottla.model import http_settings, security_settings
from ottla.model.errors import OttlaError, WireError
from ottla.model.security_settings import SUPER_USERS, parse_super_users
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.runtime.clock import Clock
from ottla.security.checked_passwords import CheckedPasswords
from ottla.security.http_access import (
    Claim,
    HttpAccess,
    HttpHead,
    HttpHosts,
    HttpRefused,
    HttpRoles,
    Method,
    Password,
    Peer,
    Role,
    Token,
)
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_server import VerifiedToken
from ottla.security.secret import Secret

log = logging.getLogger(__name__)

# A password of 4,096 iterations takes a millisecond or two of a thread, one of 16,384 about eight.
THREADS_MAX: Final = 4
# Checks that run or wait, of all addresses and of one.
CHECKS_MAX: Final = 64
CHECKS_OF_ADDRESS_MAX: Final = 8
_KEY_BYTES: Final = 32
_SCRAM: Final = (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512)


class UsersUnavailable(OttlaError):
    """No password can be verified now."""


class PasswordCheck(NamedTuple):
    """`state` changes with the user's credential.  `is_password` blocks; it raises `UsersUnavailable`."""

    state: bytes
    is_password: Callable[[Secret], bool]


class PasswordUsers(Protocol):
    def check_of(self, username: str) -> PasswordCheck:
        """Without blocking.  Raises `UsersUnavailable`."""
        ...


class TreeUsers:
    """The users of SCRAM in the tree, once it is read."""

    def __init__(self) -> None:
        self._view: Callable[[], ConfigsView] | None = None
        self._credentials: ScramCredentials | None = None

    def open(self, view: Callable[[], ConfigsView], credentials: ScramCredentials) -> None:
        """The tree is read."""
        self._view, self._credentials = view, credentials

    def check_of(self, username: str) -> PasswordCheck:
        """The check tries both mechanisms, so that it takes the same time for every name."""
        if self._view is None or self._credentials is None:
            raise UsersUnavailable("the broker has not read its users yet")
        texts = self._view().of(ConfigEntity.user(username))
        state = "\0".join(texts.get(mechanism, "") for mechanism in _SCRAM).encode()
        found = [(mechanism, self._credentials.find(mechanism, username)) for mechanism in _SCRAM]

        def is_password(password: Secret) -> bool:
            results = [each.credential.is_of(mechanism, password) and each.is_known for mechanism, each in found]
            return any(results)

        return PasswordCheck(state, is_password)


class HttpLogins:
    """Admits the requests of one server."""

    def __init__(
        self,
        name: str,
        access: HttpAccess,
        security_log: SecurityLog,
        clock: Clock,
        *,
        users: PasswordUsers | None = None,
        verify_token: Callable[[Secret], VerifiedToken] | None = None,
        failure_delay_s: float = 0.0,
    ) -> None:
        """`name` is the listener's.  `users`: with BASIC; `verify_token`: with BEARER, it raises `WireError`."""
        self._name: Final = name
        self._access: Final = access
        self._log: Final = security_log
        self._clock: Final = clock
        self._users: Final = users
        self._verify_token: Final = verify_token
        self._failure_delay_s: Final = failure_delay_s
        self._checked: Final = CheckedPasswords(secrets.token_bytes(_KEY_BYTES))
        self._threads: Final = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="passwords")
        self._checks: Final[Counter[str]] = Counter()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def admit(self, head: HttpHead, peer: Peer, role: Role | None) -> str:
        """The principal of a request, which has this role (None: the request needs no role).  Raises `HttpRefused`."""
        try:
            principal = await self._principal(self._access.claim(head, peer), peer)
            if role is not None:
                self._authorize(principal, role, head, peer)
        except HttpRefused as refused:
            facts = fields(listener=self._name, peer=peer.host, method=head.method, error=str(refused))
            log.debug("http.refused", extra=facts)
            raise
        return principal

    def allows(self, principal: str, role: Role) -> bool:
        return self._access.allows(principal, role)

    def changed(self, principal: str, head: HttpHead, peer: Peer, status: int) -> None:
        """Report a request that has changed something, or was refused while it did."""
        self._log.http_changed(HttpChange(principal, peer.host, self._name, head.method, _path(head), status))

    def _authorize(self, principal: str, role: Role, head: HttpHead, peer: Peer) -> None:
        try:
            self._access.authorize(principal, role)
        except HttpRefused as refused:
            if refused.status is HTTPStatus.FORBIDDEN:
                denial = HttpDenial(principal, peer.host, self._name, head.method, _path(head), role.value)
                self._log.denied(denial)
            raise

    async def _principal(self, claim: Claim, peer: Peer) -> str:
        if isinstance(claim, Password):
            return await self._of_password(claim, peer)
        if isinstance(claim, Token):
            return await self._of_token(claim, peer)
        return claim

    async def _of_password(self, claim: Password, peer: Peer) -> str:
        assert self._users is not None, "BASIC is offered with users only"
        try:
            check = self._users.check_of(claim.username)
            entry = self._checked.entry(claim.username, claim.secret, check.state)
            is_right = self._checked.find(entry, self._clock.monotonic_ms())
            if is_right is None:
                is_right = await self._check(check, claim.secret, peer.host)
                self._checked.add(entry, self._clock.monotonic_ms(), is_right=is_right)
        except UsersUnavailable as error:
            raise HttpRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if not is_right:
            await self._fail(claim.username, Method.BASIC, "unknown user or wrong password", peer)
        return f"User:{claim.username}"

    async def _check(self, check: PasswordCheck, password: Secret, host: str) -> bool:
        if self._checks.total() >= CHECKS_MAX or self._checks[host] >= CHECKS_OF_ADDRESS_MAX:
            raise HttpRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too many logins at a time: try again")
        self._checks[host] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, check.is_password, password)
        finally:
            self._checks[host] -= 1
            if not self._checks[host]:
                del self._checks[host]

    async def _of_token(self, claim: Token, peer: Peer) -> str:
        assert self._verify_token is not None, "BEARER is offered with an issuer only"
        try:
            verified = self._verify_token(claim.secret)
            if verified.lifetime_ms <= 0:
                raise WireError("the token has expired")
        except WireError as error:
            await self._fail("", Method.BEARER, str(error), peer)
        return f"User:{verified.subject}"

    async def _fail(self, username: str, method: Method, reason: str, peer: Peer) -> NoReturn:
        """The client gets one text for an unknown user and a wrong password, after the same time."""
        self._log.login_failed(FailedLogin(username[:TEXT_LENGTH_MAX], peer.host, self._name, method.name, reason))
        await asyncio.sleep(self._failure_delay_s)
        raise self._access.not_logged_in("the login failed")


def http_access(settings: BrokerSettings, hosts: HttpHosts) -> HttpAccess:
    """The rules of a server by its settings, which were checked.  Raises `ConfigError` for invalid roles."""
    methods = offered_methods(settings)
    if not methods and settings[security_settings.SSL_CLIENT_AUTH] == security_settings.CLIENT_AUTH_NONE:
        return HttpAccess(hosts)
    super_users = parse_super_users(settings[SUPER_USERS])
    return HttpAccess(hosts, methods, HttpRoles.parse(settings[http_settings.AUTHENTICATION_ROLES], super_users))


def offered_methods(settings: BrokerSettings) -> Iterable[Method]:
    named = settings[http_settings.AUTHENTICATION_METHOD]
    return [method for method in Method if method.name in named]


def _path(head: HttpHead) -> str:
    return head.path[:TEXT_LENGTH_MAX]

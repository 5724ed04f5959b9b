"""Logins of the listeners with SASL: checked before anything is opened, served once the tree is read.

A broker without them does not import this.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.net.connection import Connection, Router
from ottla.broker.security.credentials import PlainUsers, ScramCredentials, users_of_jaas
from ottla.broker.security.sasl_session import LoginServices, SaslSession
from ottla.broker.tree.coordination import Coordination
from ottla.coordination.broker_registry import login_secret
from ottla.model import security_settings as setting
from ottla.model.errors import ConfigError
from ottla.model.listener import Listener
from ottla.model.serve_options import require_token_issuer
from ottla.model.settings import BrokerSettings
from ottla.runtime.installed import TOKENS, require_modules
from ottla.security.mechanism import SaslMechanism
from ottla.security.sasl_server import BearerExchange, Exchange, LoginRules, PlainExchange, ScramExchange

if TYPE_CHECKING:
    from ottla.broker.security.http_logins import TreeUsers

_NONCE_BYTES: Final = 24
_SECRET_BYTES: Final = 32


class LoginPlan(NamedTuple):
    """The checked settings of one listener."""

    settings: BrokerSettings
    mechanisms: Sequence[SaslMechanism]
    # With PLAIN.
    plain_users: PlainUsers | None


def plan_login(start: BrokerStart, listener: Listener) -> LoginPlan:
    """Of a listener with SASL.  Raises `ConfigError`."""
    settings = start.settings.of_listener(listener.name)
    try:
        return _plan(settings, listener)
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}", hint=error.hint) from None


def _plan(settings: BrokerSettings, listener: Listener) -> LoginPlan:
    names = settings[setting.SASL_ENABLED_MECHANISMS]
    if not names:
        raise ConfigError("sasl.enabled.mechanisms is empty", hint="SCRAM-SHA-256,SCRAM-SHA-512 is the default")
    mechanisms = [SaslMechanism.parse(name) for name in names]
    if SaslMechanism.OAUTHBEARER in mechanisms:
        _check_bearer(settings, listener)
    plain_users = None
    if SaslMechanism.PLAIN in mechanisms:
        if not listener.uses_tls and not settings[setting.SASL_PLAIN_ALLOW_UNENCRYPTED]:
            raise ConfigError(
                "PLAIN without TLS sends passwords that the network can read",
                hint="use SASL_SSL or SCRAM-SHA-512, or accept it with sasl.plain.allow.unencrypted=true",
            )
        path, jaas = settings[setting.SASL_PLAIN_USERS_FILE], settings[setting.PLAIN_SASL_JAAS_CONFIG]
        configured = {} if jaas is None else users_of_jaas(jaas)
        if path is None and not configured:
            raise ConfigError("PLAIN has no users", hint="set sasl.plain.users.file to a file of name=password lines")
        plain_users = PlainUsers(path, configured)
    return LoginPlan(settings, mechanisms, plain_users)


def _check_bearer(settings: BrokerSettings, listener: Listener) -> None:
    require_modules("sasl.enabled.mechanisms=OAUTHBEARER", TOKENS, "security")
    if not listener.uses_tls and not settings[setting.SASL_PLAIN_ALLOW_UNENCRYPTED]:
        raise ConfigError(
            "OAUTHBEARER without TLS sends tokens that the network can read",
            hint="use SASL_SSL, or accept it with sasl.plain.allow.unencrypted=true",
        )
    require_token_issuer(settings, "OAUTHBEARER")


class Logins(NamedTuple):
    """Of one listener."""

    start: Callable[[Router, Callable[[Connection], None]], Router]
    request_bytes_max: int


async def open_logins(
    start: BrokerStart,
    plans: Sequence[LoginPlan | None],
    coordination: Coordination,
    users: TreeUsers | None,
) -> Sequence[Logins | None]:
    """The logins of each listener, over the credentials in the tree.  `users`: those of the admin listener."""
    secret = await start.retries.until_done(
        lambda: login_secret(coordination.tree, lambda: secrets.token_hex(_SECRET_BYTES))
    )
    credentials = ScramCredentials(lambda: coordination.configs.view, secret.encode())
    if users is not None:
        users.open(lambda: coordination.configs.view, credentials)
    return [None if plan is None else await _logins(start, plan, credentials) for plan in plans]


async def _logins(start: BrokerStart, plan: LoginPlan, credentials: ScramCredentials) -> Logins:
    settings = plan.settings
    exchanges: dict[SaslMechanism, Callable[[], Exchange]] = {
        mechanism: partial(_scram, mechanism, credentials) for mechanism in plan.mechanisms if mechanism.is_scram
    }
    if SaslMechanism.OAUTHBEARER in plan.mechanisms:
        exchanges[SaslMechanism.OAUTHBEARER] = await _bearer(start, settings)
    if plan.plain_users is not None:
        exchanges[SaslMechanism.PLAIN] = partial(PlainExchange, plan.plain_users.is_password)
    rules = LoginRules(exchanges, settings[setting.CONNECTIONS_MAX_REAUTH_MS])
    delay_ms = settings[setting.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS]

    def session(router: Router, on_login: Callable[[Connection], None]) -> Router:
        services = LoginServices(rules, router, start.clock.monotonic_ms, start.loop.call_later, delay_ms)
        return SaslSession(services, on_login)

    return Logins(session, settings[setting.SASL_SERVER_MAX_RECEIVE_SIZE])


async def _bearer(start: BrokerStart, settings: BrokerSettings) -> Callable[[], Exchange]:
    # They need packages of an extra.
    from ottla.broker.security.token_issuer import open_issuer

    issuer = open_issuer(settings, start.clock.now_ms)
    start.closing.push_async_callback(issuer.keys.stop)
    # Once before the first login; an issuer that does not answer delays the start by some seconds at most.
    await issuer.keys.read()
    issuer.keys.start()
    return lambda: BearerExchange(issuer.tokens.verify)


def _scram(mechanism: SaslMechanism, credentials: ScramCredentials) -> Exchange:
    return ScramExchange(mechanism, partial(credentials.find, mechanism), secrets.token_urlsafe(_NONCE_BYTES))

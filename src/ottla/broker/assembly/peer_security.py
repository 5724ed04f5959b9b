"""How this broker proves its identity to the others of a cluster, and they theirs to it."""

from __future__ import annotations

from typing import Final

from ottla.broker.assembly.broker_start import BrokerStart
from ottla.broker.assembly.listening import Listening
from ottla.broker.replicas.peer_connection import PeerLogin, PeerSecurity
from ottla.model import security_settings as setting
from ottla.model.errors import ConfigError
from ottla.model.settings import BrokerSettings
from ottla.runtime.secret_file import read_secret_file
from ottla.security.jaas import parse_jaas
from ottla.security.mechanism import SaslMechanism
from ottla.security.secret import Secret

_JAAS: Final = {
    SaslMechanism.PLAIN: setting.PLAIN_SASL_JAAS_CONFIG,
    SaslMechanism.SCRAM_SHA_256: setting.SCRAM_SHA_256_SASL_JAAS_CONFIG,
    SaslMechanism.SCRAM_SHA_512: setting.SCRAM_SHA_512_SASL_JAAS_CONFIG,
}


def peer_security(start: BrokerStart, listening: Listening) -> PeerSecurity:
    """The TLS of the listener at which brokers reach each other, and a login where it has SASL.

    Raises `ConfigError`.
    """
    listener = start.options.inter_broker_listener
    tls = listening.tls[start.options.listeners.index(listener)]
    login = _login(start.settings.of_listener(listener.name)) if listener.uses_sasl else None
    return PeerSecurity(None if tls is None else lambda: tls.peer_context, login)


def _login(settings: BrokerSettings) -> PeerLogin:
    username = settings[setting.SASL_INTER_BROKER_USERNAME]
    password = settings[setting.SASL_INTER_BROKER_PASSWORD]
    path = settings[setting.SASL_INTER_BROKER_PASSWORD_FILE]
    if path is not None:
        password = read_secret_file(path, setting.SASL_INTER_BROKER_PASSWORD_FILE.name)
    mechanism = SaslMechanism.parse(settings[setting.SASL_MECHANISM_INTER_BROKER_PROTOCOL])
    jaas = settings[_JAAS[mechanism]]
    if username is None and jaas is not None:
        options = parse_jaas(jaas).options
        username, password = options.get("username"), options.get("password")
    if not username or not password:
        raise ConfigError(
            "the brokers' listener has SASL, and this broker has no user and password for the others",
            hint="set sasl.inter.broker.username and sasl.inter.broker.password.file; ottla user add makes the user",
        )
    return PeerLogin(mechanism, username, Secret(password))

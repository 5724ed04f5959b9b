"""The settings of one broker of a secured cluster as another one gets them: its own host, certificate and login."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.model import broker_settings, zookeeper_settings
from ottla.model import security_settings as setting
from ottla.model.errors import ConfigError
from ottla.model.listener import Listener, parse_listeners
from ottla.model.serve_options import serve_options
from ottla.model.settings import BrokerSettings, broker_setting, listener_key
from ottla.security.certificate import COMMON_NAME_LENGTH_MAX
from ottla.security.mechanism import SaslMechanism
from ottla.security.principal_mapping import PrincipalMapping

SERVER_PROPERTIES: Final = "server.properties"

KEYSTORE: Final = setting.SSL_KEYSTORE_LOCATION.name
PASSWORD_FILE: Final = setting.SASL_INTER_BROKER_PASSWORD_FILE.name
# As PEM text, or the name of a file.
_CERTIFICATES: Final = setting.SSL_TRUSTSTORE_CERTIFICATES.name
_PEM_MARK: Final = "-----BEGIN"
_ZOOKEEPER_KEYSTORE: Final = zookeeper_settings.ZOOKEEPER_SSL_KEYSTORE_LOCATION.name
# Settings that name a file, and the name that it gets in the folder of the new broker.
_FILES: Final[Mapping[str, str]] = {
    KEYSTORE: "broker.pem",
    setting.SSL_TRUSTSTORE_LOCATION.name: "ca.pem",
    setting.SASL_PLAIN_USERS_FILE.name: "users",
    PASSWORD_FILE: "broker.password",
    zookeeper_settings.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION.name: "zookeeper.ca.pem",
    _ZOOKEEPER_KEYSTORE: "zookeeper.broker.pem",
    zookeeper_settings.ZOOKEEPER_DIGEST_FILE.name: "zookeeper.digest",
    zookeeper_settings.ZOOKEEPER_CONSUMERS_DIGEST_FILE.name: "zookeeper.consumers.digest",
}
# Each broker has its own, and the new one gets another or none.
_REPLACED: Final = frozenset(
    {
        broker_settings.NODE_ID.name,
        setting.SSL_KEYSTORE_TYPE.name,
        KEYSTORE,
        setting.SSL_KEYSTORE_CERTIFICATE_CHAIN.name,
        setting.SSL_KEYSTORE_KEY.name,
        setting.SSL_KEY_PASSWORD.name,
        zookeeper_settings.ZOOKEEPER_SSL_KEYSTORE_TYPE.name,
        _ZOOKEEPER_KEYSTORE,
        zookeeper_settings.ZOOKEEPER_SSL_KEYSTORE_PASSWORD.name,
        broker_settings.LISTENERS.name,
        broker_settings.ADVERTISED_LISTENERS.name,
    }
)
# Those of this machine, or with files that name further files: the operator of the new broker sets them there.
_LEFT_OUT: Final = frozenset(
    {
        broker_settings.BROKER_RACK.name,
        broker_settings.LOG_DIRS.name,
        broker_settings.PROCESSES_COMMAND_CONFIG.name,
        broker_settings.SCHEMA_REGISTRY_LISTENERS.name,
        broker_settings.SCHEMA_REGISTRY_ADVERTISED_URL.name,
        setting.SECURITY_LOG_FILE.name,
    }
)
_SHARED_LOGINS: Final = frozenset(
    {
        setting.SASL_INTER_BROKER_USERNAME.name,
        setting.SASL_INTER_BROKER_PASSWORD.name,
        PASSWORD_FILE,
        setting.SCRAM_SHA_256_SASL_JAAS_CONFIG.name,
        setting.SCRAM_SHA_512_SASL_JAAS_CONFIG.name,
    }
)


class MemberSettings(NamedTuple):
    """`files`: the path of the file that each setting names, to be read on this machine.

    `keystores`: the settings that name the new broker's certificate.  `user`: the one that it gets for itself, and
    whose password it needs.  `principal`: that of the broker, where an authorizer must allow what it does.
    `left_out`: settings that the new broker does not get.
    """

    settings: Mapping[str, str]
    files: Mapping[str, str]
    keystores: tuple[str, ...]
    user: str | None
    principal: str | None
    left_out: tuple[str, ...]


def member_settings(texts: Iterable[tuple[str, str]], host: str) -> MemberSettings:
    """`texts`: names and values of a broker's file.  `host`: by which clients and brokers reach the new one.

    Raises `ConfigError` for settings of a broker that is not one of a secured cluster.
    """
    given = _known(texts)
    settings = BrokerSettings.of(given)
    peers = _peers_listener(settings)
    of_peers = settings.of_listener(peers.name)
    mechanism = SaslMechanism.parse(of_peers[setting.SASL_MECHANISM_INTER_BROKER_PROTOCOL])
    # PLAIN's users are in a file of every broker: a new one would be unknown to the others.
    user = user_of(host) if peers.uses_sasl and mechanism.is_scram else None
    kept: dict[str, str] = {}
    files: dict[str, str] = {}
    left_out: list[str] = []
    for name, text in given.items():
        base = _base(name)
        if base in _REPLACED or (user is not None and base in _SHARED_LOGINS):
            continue
        if base in _LEFT_OUT:
            left_out.append(name)
        elif base in _FILES:
            files[name] = text
        elif base == _CERTIFICATES and _PEM_MARK not in text:
            files[name.removesuffix(_CERTIFICATES) + setting.SSL_TRUSTSTORE_LOCATION.name] = text
        else:
            kept[name] = text
    keystores = [KEYSTORE]
    if _ZOOKEEPER_KEYSTORE in given:
        keystores.append(_ZOOKEEPER_KEYSTORE)
    kept |= _addresses(settings, host)
    if user is not None:
        kept[setting.SASL_INTER_BROKER_USERNAME.name] = user
    proven = user if peers.uses_sasl else _name_in_certificate(of_peers, host)
    principal = f"User:{proven}" if proven is not None and settings[setting.AUTHORIZER_CLASS_NAME] else None
    return MemberSettings(kept, files, tuple(keystores), user, principal, tuple(left_out))


def user_of(host: str) -> str:
    """As which a broker logs in to the others."""
    return f"broker-{host}"


def mechanism_of(settings: Mapping[str, str]) -> SaslMechanism:
    """By which a broker with these settings logs in to the others."""
    return SaslMechanism.parse(
        settings.get(
            setting.SASL_MECHANISM_INTER_BROKER_PROTOCOL.name, setting.SASL_MECHANISM_INTER_BROKER_PROTOCOL.default
        )
    )


def file_name(setting_name: str) -> str:
    """Of the file that a setting names, in the folder of the broker."""
    key = listener_key(setting_name)
    return _FILES[setting_name] if key is None else f"{key.listener}.{_FILES[key.name]}"


def _known(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """By their present names, the last of equal ones; names without effect are left out, which may hold secrets."""
    given: dict[str, str] = {}
    for name, text in texts:
        if listener_key(name) is not None:
            given[name] = text
            continue
        try:
            given[broker_setting(name).name] = text
        except ConfigError:
            continue
    return given


def _base(name: str) -> str:
    key = listener_key(name)
    return name if key is None else key.name


def _peers_listener(settings: BrokerSettings) -> Listener:
    if settings[broker_settings.ZOOKEEPER_CONNECT] is None:
        raise ConfigError(
            "these are the settings of a standalone broker: zookeeper.connect is not set",
            hint="make it the first broker of a cluster (ottla cluster adopt), with zookeeper.connect in this file",
        )
    listener = serve_options(settings, insecure_listen=True).inter_broker_listener
    own = settings.of_listener(listener.name)
    if not listener.uses_tls or not (
        listener.uses_sasl or own[setting.SSL_CLIENT_AUTH] == setting.CLIENT_AUTH_REQUIRED
    ):
        raise ConfigError(
            f"the brokers of this cluster reach each other at {listener}, without TLS or a proof of identity",
            hint="set inter.broker.listener.name to a listener with SASL_SSL, or with SSL and ssl.client.auth=required",
        )
    return listener


def _addresses(settings: BrokerSettings, host: str) -> Mapping[str, str]:
    """The listeners with another host.  Those on loopback stay there, those on every interface too."""
    listeners = parse_listeners(settings[broker_settings.LISTENERS], setting="listeners")
    text = settings[broker_settings.ADVERTISED_LISTENERS]
    given = {} if text is None else {each.name: each for each in parse_listeners(text, setting="advertised.listeners")}
    advertised: list[Listener] = []
    for each in listeners:
        if each.name in given:
            found = given[each.name]
            advertised.append(found if found.is_loopback else found._replace(host=host))
        elif not each.is_loopback and each.port:
            advertised.append(each._replace(host=host))
    moved = [each if each.is_loopback or each.is_every_interface else each._replace(host=host) for each in listeners]
    texts = {broker_settings.LISTENERS.name: ",".join(map(str, moved))}
    if advertised:
        texts[broker_settings.ADVERTISED_LISTENERS.name] = ",".join(map(str, advertised))
    return texts


def _name_in_certificate(settings: BrokerSettings, host: str) -> str:
    """What the listener's rules make of the certificate's subject."""
    mapping = PrincipalMapping.parse(settings[setting.SSL_PRINCIPAL_MAPPING_RULES])
    subject = f"CN={host[:COMMON_NAME_LENGTH_MAX]}"
    name = mapping.name_of(subject)
    if not name:
        raise ConfigError(
            f"no rule of ssl.principal.mapping.rules maps the name {subject} of the new broker's certificate",
            hint="add a rule for the brokers, or DEFAULT at the end",
        )
    return name

"""The options of a broker's start, resolved and checked before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.model.broker_settings import (
    ADVERTISED_LISTENERS,
    AUDIT_ENABLE,
    CONTROLLER_LISTENER_NAMES,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    LOG_DIRS,
    PROCESSES_COMMAND_CONFIG,
    SCHEMA_REGISTRY_ADVERTISED_URL,
    SCHEMA_REGISTRY_ALLOWED_HOSTS,
    SCHEMA_REGISTRY_LISTENERS,
    SCHEMA_REGISTRY_TOPIC,
    SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR,
    SHARED_LISTENERS,
    TREE_SOCKET,
)
from ottla.model.errors import ConfigError
from ottla.model.http_settings import (
    ADMIN,
    AUTHENTICATION_METHOD,
    AUTHENTICATION_ROLES,
    BASIC,
    BEARER,
    EVERY_USER,
    NO_METHOD,
    REGISTRY,
)
from ottla.model.listener import (
    PLAINTEXT,
    SECURITY_PROTOCOLS,
    Listener,
    parse_http,
    parse_listeners,
    parse_protocol_map,
)
from ottla.model.security_settings import (
    CLIENT_AUTH_NONE,
    CLIENT_AUTH_REQUIRED,
    INTER_BROKER_FORMER_LISTENER_NAME,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SETTINGS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SECURITY_INTER_BROKER_PROTOCOL,
    SECURITY_LOG_FILE,
    SSL_CLIENT_AUTH,
    SUPER_USERS,
)
from ottla.model.settings import BrokerSettings

DEFAULT_DATA_DIR: Final = "ottla-data"
_HTTP_SERVER_SETTINGS: Final = frozenset({*LISTENER_SETTINGS, SUPER_USERS.name, SECURITY_LOG_FILE.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Of a schema registry.  `advertised_url`: where others reach it; without one, the address it listens on.

    `replication_factor`: of its topic, when it makes it; None: as many as there are brokers, 3 at most.
    `allowed_hosts`: further names by which clients reach it.  `settings`: TLS and logins of its listener.
    """

    listener: Listener
    topic: str
    replication_factor: int | None = None
    advertised_url: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    settings: BrokerSettings = field(default_factory=BrokerSettings)

    @property
    def settings_texts(self) -> Mapping[str, str]:
        """Those of its listener that are given, by name; they may hold secrets."""
        return {
            setting.name: text
            for setting, given in self.settings.all_given()
            if setting.name in _HTTP_SERVER_SETTINGS and (text := setting.format(given.value)) is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Everything that `serve` needs.  There is at least one listener; port 0 selects a free port.

    `advertised` holds the addresses for clients, by listener name; for a listener without one, each client gets the
    address that it reached.  `admin_listener` serves metrics and health; without one, nothing does.
    `registry` is that of a schema registry beside the broker.
    """

    settings: BrokerSettings
    data_dir: str
    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...] = field(default=())
    # Addresses that other brokers of this machine listen on, too, by the names of `listeners`.
    shared: tuple[Listener, ...] = field(default=())
    admin_listener: Listener | None = None
    registry: RegistryOptions | None = None
    # The name of the listener at which brokers reach each other, when one is for them alone.
    inter_broker_name: str | None = None
    # The one that was it before, at which some brokers still fetch.
    former_inter_broker_name: str | None = None

    @property
    def processes_listener_index(self) -> int | None:
        """The listener by which child processes of the broker reach it: the first without TLS or a login, or with
        `processes.command.config` the first with them, one for clients before the one for brokers."""
        wants_plain = self.settings[PROCESSES_COMMAND_CONFIG] is None
        found = [n for n, each in enumerate(self.listeners) if (each.protocol == PLAINTEXT) is wants_plain]
        of_clients = [n for n in found if wants_plain or self.listeners[n].name != self.inter_broker_name]
        return next(iter(of_clients or found), None)

    @property
    def replica_listeners(self) -> frozenset[str]:
        """The names of the only listeners on which brokers may fetch; empty: any."""
        if self.inter_broker_name is None:
            return frozenset()
        return frozenset(name for name in (self.inter_broker_name, self.former_inter_broker_name) if name is not None)

    @property
    def inter_broker_listener(self) -> Listener:
        return next((each for each in self.listeners if each.name == self.inter_broker_name), self.listeners[0])


def serve_options(
    settings: BrokerSettings,
    *,
    data_dir: str | None = None,
    listen: tuple[Listener, ...] = (),
    admin_listener: Listener | None = None,
    insecure_listen: bool = False,
) -> ServeOptions:
    """The options that follow from settings and flags; flags win.  Raises `ConfigError`."""
    listeners = _flag_listeners(settings, listen) or _configured_listeners(settings)
    shared = _shared(settings, listeners)
    for listener in (*listeners, *shared):
        if not listener.is_loopback and not insecure_listen:
            _require_protection(listener, settings)
    if admin_listener is not None:
        require_http_protection(
            admin_listener,
            settings.of_listener(ADMIN),
            "metrics",
            "read the names of topics and groups, and their metrics",
            insecure_listen=insecure_listen,
        )
    options = ServeOptions(
        settings=settings,
        data_dir=data_dir_of(settings) if data_dir is None else data_dir,
        listeners=listeners,
        advertised=_advertised(settings, listeners),
        shared=shared,
        admin_listener=admin_listener,
        registry=_registry(settings, insecure_listen=insecure_listen),
        inter_broker_name=_inter_broker_name(settings, listeners),
        former_inter_broker_name=_former_inter_broker_name(settings, listeners),
    )
    if options.registry is not None or settings[AUDIT_ENABLE]:
        _require_processes_listener(options)
    return options


def _inter_broker_name(settings: BrokerSettings, listeners: tuple[Listener, ...]) -> str | None:
    name, protocol = settings[INTER_BROKER_LISTENER_NAME], settings[SECURITY_INTER_BROKER_PROTOCOL]
    if name is not None and protocol is not None:
        raise ConfigError(
            "inter.broker.listener.name and security.inter.broker.protocol are both set", hint="leave one of them out"
        )
    if name is None and protocol is None:
        return None
    for listener in listeners:
        if name is not None and listener.name == name.upper():
            return listener.name
        if protocol is not None and listener.protocol == protocol.upper():
            return listener.name
    given = f"inter.broker.listener.name={name}" if name is not None else f"security.inter.broker.protocol={protocol}"
    raise ConfigError(
        f"{given} is not among the listeners {', '.join(map(str, listeners))}", hint="add it to listeners"
    )


def _former_inter_broker_name(settings: BrokerSettings, listeners: tuple[Listener, ...]) -> str | None:
    name = settings[INTER_BROKER_FORMER_LISTENER_NAME]
    if name is None:
        return None
    if settings[INTER_BROKER_LISTENER_NAME] is None and settings[SECURITY_INTER_BROKER_PROTOCOL] is None:
        raise ConfigError(
            "inter.broker.former.listener.name is set, and inter.broker.listener.name is not",
            hint="set the listener to which the brokers change",
        )
    if name.upper() not in {listener.name for listener in listeners}:
        raise ConfigError(
            f"inter.broker.former.listener.name={name} is not among the listeners {', '.join(map(str, listeners))}",
            hint="remove it: no broker can use a listener that is closed",
        )
    return name.upper()


def _registry(settings: BrokerSettings, *, insecure_listen: bool) -> RegistryOptions | None:
    text = settings[SCHEMA_REGISTRY_LISTENERS]
    if not text:
        return None
    listener = parse_http(text, setting="schema.registry.listeners", name=REGISTRY)
    own_settings = settings.of_listener(REGISTRY)
    require_registry_listener(listener, own_settings, insecure_listen=insecure_listen)
    require_registry_url(listener, settings[SCHEMA_REGISTRY_ADVERTISED_URL])
    return RegistryOptions(
        listener=listener,
        topic=settings[SCHEMA_REGISTRY_TOPIC],
        replication_factor=settings[SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR],
        advertised_url=settings[SCHEMA_REGISTRY_ADVERTISED_URL],
        allowed_hosts=tuple(settings[SCHEMA_REGISTRY_ALLOWED_HOSTS]),
        settings=own_settings,
    )


def require_registry_listener(listener: Listener, settings: BrokerSettings, *, insecure_listen: bool) -> None:
    """Raises `ConfigError` for an address that others reach without proving their identity."""
    require_http_protection(listener, settings, "schemas", "change them", insecure_listen=insecure_listen)


def require_http_protection(
    listener: Listener, settings: BrokerSettings, what: str, harm: str, *, insecure_listen: bool
) -> None:
    """Raises `ConfigError` for logins that contradict each other, and for an address that others reach without TLS
    and a login."""
    methods = [each for each in settings[AUTHENTICATION_METHOD] if each != NO_METHOD]
    if len(methods) < len(settings[AUTHENTICATION_METHOD]) and methods:
        raise ConfigError(
            f"authentication.method: {NO_METHOD} is named with {methods[0]}", hint="leave one of them out"
        )
    has_login = bool(methods) or (listener.uses_tls and settings[SSL_CLIENT_AUTH] == CLIENT_AUTH_REQUIRED)
    may_log_in = has_login or (listener.uses_tls and settings[SSL_CLIENT_AUTH] != CLIENT_AUTH_NONE)
    if not may_log_in and settings[AUTHENTICATION_ROLES] != EVERY_USER:
        raise ConfigError(
            "authentication.roles is set, and no client can log in",
            hint=f"set authentication.method={BASIC}, or ssl.client.auth with TLS",
        )
    if BEARER in methods:
        require_token_issuer(settings, BEARER)
    if listener.is_loopback or insecure_listen or (has_login and listener.uses_tls):
        return
    where, port = listener.host or "every interface", listener.port
    if has_login:
        raise ConfigError(
            f"refused to serve {what} on {where}: passwords and tokens would be readable on the network",
            hint="write https://HOST:PORT and set ssl.keystore.location, listen on 127.0.0.1, or accept it with "
            "--insecure-listen",
        )
    raise ConfigError(
        f"refused to serve {what} on {where}: anyone who reaches port {port} could {harm}",
        hint="listen on 127.0.0.1, set https:// with authentication.method or ssl.client.auth=required, or accept it "
        "with --insecure-listen",
    )


def require_token_issuer(settings: BrokerSettings, wanted_by: str) -> None:
    """Raises `ConfigError` where the tokens of any issuer, or for any service, would log in."""
    for needed in (
        SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
        SASL_OAUTHBEARER_EXPECTED_ISSUER,
        SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    ):
        if not settings[needed]:
            raise ConfigError(
                f"{wanted_by} needs {needed.name}",
                hint="else the tokens of any issuer, or for any service, would log in",
            )


def require_registry_url(listener: Listener, advertised_url: str | None) -> None:
    """Raises `ConfigError` where the address to listen on is none by which other registries reach this one."""
    if advertised_url is None and listener.is_every_interface:
        raise ConfigError(
            f"the registry listens on {listener.host or 'every interface'}, which is no address that others can reach",
            hint="set schema.registry.advertised.url (--advertise), such as http://HOST:8081",
        )


def _flag_listeners(settings: BrokerSettings, listen: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """Their names are those of protocols; one that the map gives another protocol has that."""
    protocols = parse_protocol_map(settings[LISTENER_SECURITY_PROTOCOL_MAP])
    return tuple(
        each._replace(protocol=protocols.get(each.name, protocols.get(each.protocol, each.protocol))) for each in listen
    )


def _configured_listeners(settings: BrokerSettings) -> tuple[Listener, ...]:
    protocols = parse_protocol_map(settings[LISTENER_SECURITY_PROTOCOL_MAP])
    left_out = {name.upper() for name in settings[CONTROLLER_LISTENER_NAMES]}
    found = [each for each in parse_listeners(settings[LISTENERS], setting="listeners") if each.name not in left_out]
    if not found:
        raise ConfigError(
            "listeners: only the controller's listeners are left",
            hint="add one for clients: PLAINTEXT://127.0.0.1:9092",
        )
    for listener in found:
        if protocols.get(listener.name, listener.name) not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listeners: listener.security.protocol.map has no protocol for {listener.name}",
                hint=f"add {listener.name}:SASL_SSL; a listener that is named as a protocol needs no entry",
            )
    return tuple(each._replace(protocol=protocols.get(each.name, each.name)) for each in found)


def _require_protection(listener: Listener, settings: BrokerSettings) -> None:
    """Raises `ConfigError` for an address that other machines reach, where clients need not prove their identity."""
    has_certificates = settings.of_listener(listener.name)[SSL_CLIENT_AUTH] == CLIENT_AUTH_REQUIRED
    if listener.uses_sasl or (listener.uses_tls and has_certificates):
        return
    where = listener.host or "every interface"
    if listener.uses_tls:
        raise ConfigError(
            f"refused to listen on {where}: TLS encrypts, but anyone who reaches port {listener.port} could read and "
            "write everything",
            hint="set ssl.client.auth=required, use SASL_SSL (ottla secure init), or accept it with --insecure-listen",
        )
    raise ConfigError(
        f"refused to listen on {where}: anyone who reaches port {listener.port} could read and write everything, "
        "without password or encryption",
        hint="listen on 127.0.0.1, let clients log in (ottla secure init makes all that SASL_SSL needs), or accept it "
        "with --insecure-listen",
    )


def _require_processes_listener(options: ServeOptions) -> None:
    """Raises `ConfigError` where child processes of the broker have no listener to connect to, or the registry none to
    verify passwords at."""
    index, registry = options.processes_listener_index, options.registry
    if index is not None and registry is not None and BASIC in registry.settings[AUTHENTICATION_METHOD]:
        if not options.listeners[index].uses_sasl:
            raise ConfigError(
                f"authentication.method={BASIC}: the schema registry verifies passwords by logins at the broker, and "
                f"{options.listeners[index]}, to which it connects, has none",
                hint="set processes.command.config to a client.properties for a listener with SASL, or "
                f"listener.name.registry.authentication.method to {BEARER} or {NO_METHOD}",
            )
        return
    if index is not None:
        return
    if options.settings[PROCESSES_COMMAND_CONFIG] is not None:
        raise ConfigError(
            "processes.command.config is set, and no listener has TLS or a login", hint="leave it out, or add one"
        )
    raise ConfigError(
        "the schema registry and the audit beside a broker reach it by a PLAINTEXT listener, and there is none",
        hint="add PLAINTEXT://127.0.0.1:9092 to listeners: on loopback only this machine reaches it; or set "
        "processes.command.config to a client.properties with their TLS and login",
    )


def _advertised(settings: BrokerSettings, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    text = settings[ADVERTISED_LISTENERS]
    if text is None:
        return ()
    advertised = parse_listeners(text, setting="advertised.listeners")
    names = {listener.name for listener in listeners}
    left_out = {name.upper() for name in settings[CONTROLLER_LISTENER_NAMES]}
    for each in advertised:
        if each.is_every_interface or each.port == 0:
            raise ConfigError(
                f"advertised.listeners: {each} is no address that a client can reach", hint="name a host and a port"
            )
        if each.name not in names and each.name not in left_out:
            raise ConfigError(
                f"advertised.listeners: {each.name} is not among the listeners {', '.join(sorted(names))}",
                hint="use the same names in listeners and advertised.listeners",
            )
    return tuple(each for each in advertised if each.name in names)


def _shared(settings: BrokerSettings, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    text = settings[SHARED_LISTENERS]
    if text is None:
        return ()
    if settings[TREE_SOCKET] is None:
        raise ConfigError(
            "shared.listeners is set, and the broker shares no tree with others of this machine",
            hint="remove it: `ottla serve --processes` sets it for the brokers that it starts",
        )
    protocols = {listener.name: listener.protocol for listener in listeners}
    shared = parse_listeners(text, setting="shared.listeners")
    for each in shared:
        if each.name not in protocols:
            raise ConfigError(
                f"shared.listeners: {each.name} is not among the listeners {', '.join(sorted(protocols))}",
                hint="use the same names in listeners and shared.listeners",
            )
        if each.port == 0:
            raise ConfigError(f"shared.listeners: {each} names no port", hint="brokers share a port that they know")
    return tuple(each._replace(protocol=protocols[each.name]) for each in shared)


def data_dir_of(settings: BrokerSettings) -> str:
    """The data directory where no flag names one.  Raises `ConfigError` for several."""
    text = settings[LOG_DIRS]
    if text is None:
        return DEFAULT_DATA_DIR
    directories = [part.strip() for part in text.split(",") if part.strip()]
    if len(directories) != 1:
        raise ConfigError(
            f"log.dirs names {len(directories)} directories, and a broker has one",
            hint="run a broker for each disk, or join the disks in one file system",
        )
    return directories[0]

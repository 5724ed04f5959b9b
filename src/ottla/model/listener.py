"""Addresses in Kafka's form (`PLAINTEXT://host:port`) and the short one (`host:port`, `[ipv6]:port`)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.model.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
SECURITY_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HTTP_PROTOCOLS: Final[Mapping[str, str]] = {"http": PLAINTEXT, "https": "SSL"}
DEFAULT_LISTENER_NAME: Final = PLAINTEXT
PORT_MAX: Final = 65_535
_MAPPED: Final = "::ffff:"
_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})
_ADDRESS_HINT: Final = "write HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; port 0 selects a free one"


def address_text(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_mapping(host: str) -> str:
    """An IPv4 address as such: a socket for both families has it in IPv6 form (RFC 4291, 2.5.5.2)."""
    return host.removeprefix(_MAPPED) if host.startswith(_MAPPED) and "." in host else host


class Listener(NamedTuple):
    """An address to listen on, or to advertise.  An empty host is every interface, port 0 a free one.

    `protocol` is one of `SECURITY_PROTOCOLS`.
    """

    name: str
    host: str
    port: int
    protocol: str = PLAINTEXT

    def __str__(self) -> str:
        return f"{self.name}://{address_text(self.host, self.port)}"

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def url_scheme(self) -> str:
        """Of a listener for HTTP."""
        return "https" if self.uses_tls else "http"

    @property
    def is_every_interface(self) -> bool:
        return self.host in _EVERY_INTERFACE

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it.  A name other than `localhost` is not trusted."""
        return is_loopback_host(self.host)


def is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str, *, name: str = DEFAULT_LISTENER_NAME) -> Listener:
    """`HOST:PORT` or `[IPv6]:PORT`.  Raises `ConfigError`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon:
        raise ConfigError(f"{text!r} is not an address: the port is missing", hint=_ADDRESS_HINT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text!r} is not an address: write an IPv6 host in brackets", hint=_ADDRESS_HINT)
    if not port.isascii() or not port.isdigit() or int(port[:6]) > PORT_MAX or len(port) > 5:
        raise ConfigError(f"{text!r} is not an address: {port!r} is not a port", hint=_ADDRESS_HINT)
    if any(character.isspace() or character in "/,[]@" for character in host):
        raise ConfigError(f"{text!r} is not an address: {host!r} is not a host", hint=_ADDRESS_HINT)
    return Listener(name, host, int(port))


def parse_flag(text: str, *, name: str = DEFAULT_LISTENER_NAME) -> Listener:
    """The value of --listen: `HOST:PORT`, or `PROTOCOL://HOST:PORT` as Kafka writes it.  Raises `ConfigError`."""
    protocol, separator, address = text.strip().partition("://")
    if not separator:
        return parse_address(text, name=name)
    protocol = protocol.upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(
            f"{text!r} asks for {protocol or 'no protocol'}, and offered are {', '.join(SECURITY_PROTOCOLS)}",
            hint="write SASL_SSL://HOST:PORT, or only HOST:PORT; names are for --set listeners=NAME://HOST:PORT",
        )
    return parse_address(address, name=name if protocol == PLAINTEXT else protocol)._replace(protocol=protocol)


def parse_http(text: str, *, setting: str, name: str) -> Listener:
    """`http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`.  Raises `ConfigError` that names `setting`."""
    protocol, separator, address = text.strip().rstrip("/").rpartition("://")
    if separator and protocol.lower() not in HTTP_PROTOCOLS:
        raise ConfigError(
            f"{setting}: {text!r} asks for {protocol or 'no protocol'}, and offered are http and https",
            hint="write http://HOST:PORT, or https://HOST:PORT with ssl.keystore.location",
        )
    try:
        listener = parse_address(address, name=name)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}", hint="write http://HOST:PORT; port 0 selects a free one") from None
    return listener._replace(protocol=HTTP_PROTOCOLS.get(protocol.lower(), PLAINTEXT))


def parse_listeners(text: str, *, setting: str) -> tuple[Listener, ...]:
    """Kafka's comma-separated `NAME://host:port` list.  Raises `ConfigError` that names `setting`."""
    found: list[Listener] = []
    for part in text.split(","):
        name, separator, address = part.strip().partition("://")
        if not separator or not name:
            raise ConfigError(
                f"{setting}: {part.strip()!r} is not a listener", hint="write NAME://host:port, with commas between"
            )
        listener = parse_address(address, name=name.upper())
        if any(listener.name == other.name for other in found):
            raise ConfigError(f"{setting}: the listener name {listener.name} is used twice", hint="rename one")
        found.append(listener)
    return tuple(found)


def parse_protocol_map(text: str) -> Mapping[str, str]:
    """Kafka's `listener.security.protocol.map`: `NAME:PROTOCOL`, with commas between."""
    protocols: dict[str, str] = {}
    for part in text.split(","):
        name, colon, protocol = part.strip().partition(":")
        if not colon or not name or not protocol:
            raise ConfigError(
                f"listener.security.protocol.map: {part.strip()!r} is not a pair",
                hint="write NAME:PROTOCOL, with commas between",
            )
        if protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {protocol.strip()!r} is not a protocol",
                hint=f"a protocol is one of {', '.join(SECURITY_PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols

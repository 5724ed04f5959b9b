"""Addresses of brokers: host:port, with [brackets] around an IPv6 host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.client.wire.errors import BadAddress
from ottla.model.listener import address_text

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def parse_bootstrap(bootstrap: str | Sequence[str]) -> list[Address]:
    """`"a:9092,b:9092"` or a sequence of such; a missing port is 9092.  Raises BadAddress."""
    if not (isinstance(bootstrap, Sequence) and all(isinstance(each, str) for each in bootstrap)):
        raise BadAddress(f"{bootstrap!r} is not an address")
    texts = (
        bootstrap.split(",") if isinstance(bootstrap, str) else [part for text in bootstrap for part in text.split(",")]
    )
    addresses = [_parse(text.strip()) for text in texts if text.strip()]
    if not addresses:
        raise BadAddress("no bootstrap address was given")
    return addresses


def _parse(text: str) -> Address:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if rest.startswith(":") else "" if rest else str(DEFAULT_PORT)
        if not bracket:
            raise BadAddress(f"{text!r} has no closing bracket")
    elif "://" in text:
        raise BadAddress(f"{text!r} is a URL, and a broker's address is not", hint=_without_scheme(text))
    elif text.count(":") > 1:
        raise BadAddress(f"{text!r} is not an address", hint="write an IPv6 host in brackets: [::1]:9092")
    else:
        host, colon, port = text.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        raise BadAddress(f"{text!r} is not an address")
    return Address(host, int(port))


def _without_scheme(text: str) -> str:
    scheme, _, rest = text.partition("://")
    host_port = rest.split("/")[0].rpartition("@")[2]
    if scheme.upper() in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        return f"as a bootstrap address it is {host_port}, without the listener's name"
    return f"brokers speak Kafka's protocol, not {scheme}: give host:port, {host_port} if that is the broker's own port"

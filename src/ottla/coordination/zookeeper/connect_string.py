"""The address of a ZooKeeper: `zk1:2181,zk2:2181/chroot`."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.coordination.tree import check_path
from ottla.coordination.zookeeper.errors import BadConnectString
from ottla.model.listener import address_text

DEFAULT_PORT: Final = 2181
# Part of `tree.OPERATION_BYTES`: every path of a request carries it.
CHROOT_BYTES_MAX: Final = 128


class ConnectString(NamedTuple):
    """The servers, any of which serves, and the node below which everything is kept; no chroot is an empty text."""

    servers: tuple[tuple[str, int], ...]
    chroot: str

    @classmethod
    def parse(cls, text: str) -> ConnectString:
        """Raises `BadConnectString`."""
        addresses, slash, below = text.strip().partition("/")
        servers = tuple(_server(text, address.strip()) for address in addresses.split(","))
        chroot = slash + below if below else ""
        if "," in chroot or ":" in chroot:
            # Else the servers behind it would be a part of a path, and the brokers another cluster.
            raise BadConnectString(text, f"{chroot!r} names servers: the chroot is written once, after the last server")
        if chroot:
            try:
                check_path(chroot)
            except ValueError as error:
                raise BadConnectString(text, str(error)) from error
        if len(chroot.encode()) > CHROOT_BYTES_MAX:
            raise BadConnectString(text, f"the chroot is longer than {CHROOT_BYTES_MAX} bytes")
        return cls(servers, chroot)

    @property
    def addresses(self) -> list[str]:
        """Each server as kazoo reads it."""
        return [address_text(host, port) for host, port in self.servers]

    def __str__(self) -> str:
        return ",".join(self.addresses) + self.chroot


def _server(text: str, address: str) -> tuple[str, int]:
    """One `host`, `host:port` or `[ipv6]:port`."""
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise BadConnectString(text, f"{address!r} is not [ipv6 address]:port")
        port = rest[1:] if rest else str(DEFAULT_PORT)
    else:
        host, colon, port = address.partition(":")
        if not colon:
            port = str(DEFAULT_PORT)
    if not host or not host.isprintable() or any(character in host for character in " @?#"):
        raise BadConnectString(text, f"{address!r} has no host name" if not host else f"{host!r} is not a host name")
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise BadConnectString(text, f"{port!r} is not a port (of {address!r})")
    return host, int(port)

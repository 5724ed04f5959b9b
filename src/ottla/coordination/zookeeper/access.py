"""How a ZooKeeper is reached: its address, `zk1:2181,zk2:2181/chroot`, credentials, and the errors of both."""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
from typing import Final, NamedTuple

from ottla.coordination.tree import TreeError, check_path
from ottla.model.error_code import ErrorCode
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.limits import MIB
from ottla.model.listener import address_text

# Part of `tree.OPERATION_BYTES`: the server notes the user on every node that is created.
USER_BYTES_MAX: Final = 64
ANSWER_WITHIN_S: Final = 5.0
# `cons` of a busy server is long; nothing else comes close.
ANSWER_BYTES_MAX: Final = 16 * MIB
DEFAULT_PORT: Final = 2181
# Part of `tree.OPERATION_BYTES`: every path of a request carries it.
CHROOT_BYTES_MAX: Final = 128


class BadConnectString(ConfigError):
    """`zookeeper.connect` cannot be read."""

    hint = "write it as host:port,host:port/chroot, for example zk1:2181,zk2:2181,zk3:2181/ottla"

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"zookeeper.connect {text!r}: {problem}")


class ZooKeeperUnreachable(OttlaError):
    """No server of the connect string gave a session in time."""

    error_code = ErrorCode.BROKER_NOT_AVAILABLE
    hint = "check that ZooKeeper runs, its address (of brokers: zookeeper.connect), and the network between"


class ZooKeeperDistrusted(OttlaError):
    """A server was reached, and TLS with it failed: its certificate, this client's, or a port without TLS."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class ZooKeeperRefused(OttlaError):
    """A server answered, but refuses these credentials."""

    error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    hint = (
        "all brokers of a cluster need the same ZooKeeper credentials, and the servers must allow the scheme 'digest'"
    )


class OperationRefused(TreeError):
    """ZooKeeper refused an operation for a reason that the tree does not have; the hint names it."""

    about = "was refused by ZooKeeper"


class DigestCredentials(NamedTuple):
    """User and password of ZooKeeper's scheme `digest`."""

    user: str
    password: str

    @classmethod
    def parse(cls, text: str) -> DigestCredentials:
        """From `user:password`.  Raises `ConfigError`, which does not repeat the password."""
        user, colon, password = text.partition(":")
        if not colon or not user or not password:
            raise ConfigError("ZooKeeper's digest credentials are not of the form user:password")
        if len(user.encode()) > USER_BYTES_MAX:
            raise ConfigError(f"the user of ZooKeeper's digest credentials is longer than {USER_BYTES_MAX} bytes")
        return cls(user, password)

    @property
    def credential(self) -> str:
        return f"{self.user}:{self.password}"

    @property
    def identity(self) -> str:
        """As access lists have it: the server makes it of the credential."""
        # The protocol demands SHA-1; a list can be read by its owner only.
        digest = hashlib.sha1(self.credential.encode(), usedforsecurity=False).digest()
        return f"{self.user}:{base64.b64encode(digest).decode()}"

    def __repr__(self) -> str:
        return f"DigestCredentials({self.user!r}, password hidden)"


class SessionCredentials(NamedTuple):
    """What lets a process take over a session, to end it: a restarted broker its former one."""

    session_id: int
    password: bytes

    def __repr__(self) -> str:
        return f"SessionCredentials({self.session_id}, password hidden)"


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
            # Else the servers after it would be a part of a path, and the brokers another cluster.
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


def ask_zookeeper(
    host: str, port: int, word: str, *, timeout_s: float = ANSWER_WITHIN_S, tls: ssl.SSLContext | None = None
) -> str:
    """The answer to a command of four letters, which needs no session: `conf`, `cons`, `mntr`, `ruok`, `srvr`.

    Empty when no server answers, or none that `tls` trusts."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            if tls is None:
                return _answer(connection, word)
            with tls.wrap_socket(connection, server_hostname=host) as secured:
                return _answer(secured, word)
    except OSError:
        return ""


def _answer(connection: socket.socket, word: str) -> str:
    connection.sendall(word.encode())
    answer = bytearray()
    while len(answer) < ANSWER_BYTES_MAX:
        try:
            piece = connection.recv(65_536)
        except ssl.SSLEOFError:
            break  # ZooKeeper closes without the end of TLS
        if not piece:
            break
        answer += piece
    return answer.decode(errors="replace")

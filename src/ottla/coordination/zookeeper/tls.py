"""TLS to ZooKeeper: the host name is verified, and no CA counts but the given ones.  kazoo's own TLS does neither."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kazoo.handlers.utils import create_tcp_connection, selector_select

from ottla.model.errors import ConfigError
from ottla.security.secret import Secret

_TRUSTSTORE: Final = "zookeeper.ssl.truststore.location"
_KEYSTORE: Final = "zookeeper.ssl.keystore.location"
# Of kazoo's look for a server that is not read-only, which has none.
_CONNECT_TIMEOUT_S: Final = 5.0
# Of X509_V_ERR_ in OpenSSL.
_EXPIRED: Final = 10
_OTHER_HOST: Final = frozenset({62, 64})
_ALERT_OF_CERTIFICATE: Final = re.compile(r"CERTIFICATE_REQUIRED|ALERT_(?:BAD_CERTIFICATE|HANDSHAKE_FAILURE)")
_ALERT_OF_CA: Final = re.compile(r"ALERT_(?:CERTIFICATE_\w+|UNKNOWN_CA|UNSUPPORTED_CERT\w+)")
NO_TLS_HINT: Final = (
    "a port with TLS closes plain connections: if this is one, set zookeeper.ssl.client.enable=true and "
    "zookeeper.ssl.truststore.location"
)
_SECURE_PORT_HINT: Final = "is it the server's secureClientPort?  Its clientPort has no TLS"
CLOSED_HINT: Final = (
    "it may demand a client certificate (ssl.clientAuth=need, its default): set zookeeper.ssl.keystore.location"
)


class ZooKeeperTls(NamedTuple):
    """Paths of PEM files: the CAs of the servers, and a key with its certificate for servers that demand one."""

    truststore: str
    keystore: str | None = None
    key_password: Secret | None = None

    def context(self) -> ssl.SSLContext:
        """The files are read each time: a replaced one counts from the next session on.  Raises `ConfigError`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(cafile=self.truststore)
        except OSError as error:
            raise ConfigError(
                f"{_TRUSTSTORE}: cannot read CAs from {self.truststore}: {error.strerror or error}",
                hint="name a PEM file with the CAs of the ZooKeeper servers",
            ) from None
        if self.keystore is not None:
            self._load_chain(context, self.keystore)
        return context

    def _load_chain(self, context: ssl.SSLContext, path: str) -> None:
        password = self.key_password

        def key_password() -> str:
            if password is None:
                raise ConfigError(
                    f"{_KEYSTORE}: the private key of {path} is encrypted", hint="set zookeeper.ssl.keystore.password"
                )
            return password.reveal()

        try:
            context.load_cert_chain(path, password=key_password)
        except OSError as error:
            raise ConfigError(
                f"{_KEYSTORE}: cannot use {path}: {error.strerror or error}",
                hint="name a PEM file with a private key, its certificate, and those of intermediate CAs",
            ) from None


class TlsFailure(OSError):
    """No TLS with a server; `problem` says why, and `hint` what to do.

    `is_final`: it is not the moment, as with a server that stops just now, so no repetition helps.
    """

    def __init__(self, problem: str, hint: str, *, is_final: bool = True) -> None:
        super().__init__(0, problem)
        self.problem = problem
        self.hint = hint
        self.is_final = is_final


def connect_socket(
    context: ssl.SSLContext | None,
    address: tuple[str, int],
    hostname: str | None = None,
    timeout: float | None = None,
    **options: Any,
) -> Any:
    """The connection that kazoo requests of its handler (`create_tcp_connection`), with our TLS in place of kazoo's.

    Raises `TlsFailure` and `OSError`.
    """
    if context is None:
        return create_tcp_connection(socket, address, hostname, timeout, **options)
    host, timeout_s = hostname or address[0], timeout or _CONNECT_TIMEOUT_S
    end_s = time.monotonic() + timeout_s
    connected = socket.create_connection(address, timeout_s)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.settimeout(max(end_s - time.monotonic(), 0.001))
        return context.wrap_socket(connected, server_hostname=host)
    except TimeoutError:
        connected.close()
        raise TlsFailure("it did not answer the TLS handshake in time", _SECURE_PORT_HINT, is_final=False) from None
    except OSError as error:
        connected.close()
        raise tls_failure(error, host) from error


def tls_failure(error: OSError, host: str) -> TlsFailure:
    """Why a handshake failed, or the reads after it: with TLS 1.3 a server refuses a client's certificate only then."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return TlsFailure(
                f"its certificate is for another host than {host}",
                "zookeeper.connect must name the servers as their certificates do (subject alternative names)",
            )
        if error.verify_code == _EXPIRED:
            return TlsFailure("its certificate has expired", "renew the certificate of the ZooKeeper server")
        return TlsFailure(
            f"its certificate is not signed by a CA of {_TRUSTSTORE}: {error.verify_message}",
            f"name the CA of the ZooKeeper servers in {_TRUSTSTORE}; no other CA is trusted",
        )
    reason = (error.reason if isinstance(error, ssl.SSLError) else None) or error.strerror or str(error)
    if _ALERT_OF_CERTIFICATE.search(reason):
        return TlsFailure(
            f"it demands a client certificate ({reason})",
            f"set {_KEYSTORE}, or ssl.clientAuth=none in the servers' zoo.cfg",
        )
    if _ALERT_OF_CA.search(reason):
        return TlsFailure(
            f"it refused this client's certificate ({reason})",
            f"is the certificate of {_KEYSTORE} valid now, and signed by a CA of the servers' ssl.trustStore?",
        )
    is_final = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
    return TlsFailure(f"no TLS there ({reason})", _SECURE_PORT_HINT, is_final=is_final)


def select_sockets(readers: Sequence[Any], *others: Any) -> Any:
    """kazoo's select, which does not see what TLS has decrypted already: an answer would wait for the next one."""
    buffered = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
    return (buffered, [], []) if buffered else selector_select(readers, *others)


def shut_down(connected: socket.socket) -> None:
    """Break a connection that another thread uses: `SSLSocket.shutdown` would take its TLS away under that thread."""
    with suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)

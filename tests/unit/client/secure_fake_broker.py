"""A fake broker on a loopback port, with TLS and logins: the certificates of its tests are made in memory."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache
from types import TracebackType
from typing import Final

import trustme

from ottla.client.wire.address import Address
from ottla.runtime.clock import SystemClock
from tests.unit.client.fake_cluster import FakeCluster, FakeTransport
from tests.unit.client.fake_sasl import FakeSasl

HOST: Final = "localhost"
_TIMEOUT_S: Final = 30.0


@cache
def authority() -> trustme.CA:
    """Signs the certificates of brokers and clients."""
    return trustme.CA(organization_name="of these tests")


@cache
def foreign_authority() -> trustme.CA:
    return trustme.CA(organization_name="another")


def pem_of(ca: trustme.CA) -> str:
    return ca.cert_pem.bytes().decode()


def server_context(certificate: trustme.LeafCert, *, demands_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if demands_certificate:
        authority().configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def certificate_of(
    name: str = HOST, *, ca: trustme.CA | None = None, not_after: datetime | None = None
) -> trustme.LeafCert:
    return (ca or authority()).issue_cert(name, not_after=not_after)


class SecureFakeBroker:
    """Serves connections, each in a thread, until the end of the block.  Without `context` it is a plain listener.

    Like Apache Kafka it closes a connection whose first bytes are no frame, as those of a TLS client at a plain
    listener, and one without a login where `sasl` demands one.
    """

    def __init__(self, context: ssl.SSLContext | None = None, sasl: FakeSasl | None = None) -> None:
        self.cluster = FakeCluster()
        self.broker = self.cluster.brokers[1]
        self.broker.sasl = sasl
        self._context = context
        self._listener = socket.create_server((HOST, 0))
        self.address = Address(HOST, self._listener.getsockname()[1])
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> SecureFakeBroker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_TIMEOUT_S)

    def _accept(self) -> None:
        serving: list[threading.Thread] = []
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                break
            accepted.settimeout(_TIMEOUT_S)
            self._connections.append(accepted)
            serving.append(threading.Thread(target=self._serve, args=(accepted,), daemon=True))
            serving[-1].start()
        for accepted in self._connections:
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
            accepted.close()
        for thread in serving:
            thread.join(_TIMEOUT_S)

    def _serve(self, accepted: socket.socket) -> None:
        connected = accepted
        try:
            if self._context is not None:
                connected = self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
                self._connections.append(connected)
                connected.do_handshake()
            transport = FakeTransport(self.broker)
            for frame in _frames(connected):
                transport.requests.append(frame)
                self.broker.work(transport)
                connected.sendall(bytes(transport.answers))
                transport.answers.clear()
                if transport.is_cut:
                    break
        except ssl.SSLError:
            # The client must get the alert: a close with unread bytes would reset the connection.
            with suppress(OSError):
                connected.shutdown(socket.SHUT_WR)
                while socket.socket.recv(connected, 1 << 16):
                    pass
        except (OSError, ValueError):
            pass
        finally:
            connected.close()


def _frames(connected: socket.socket) -> Iterator[bytes]:
    data = b""
    while True:
        length = int.from_bytes(data[:4], "big") if len(data) >= 4 else None
        if length is not None and length > 1 << 20:
            raise ValueError("no frame")
        if length is not None and len(data) >= 4 + length:
            yield data[: 4 + length]
            data = data[4 + length :]
            continue
        received = connected.recv(1 << 16)
        if not received:
            return
        data += received


SYSTEM_CLOCK: Final = SystemClock()

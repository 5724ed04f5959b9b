"""A listener with TLS, and clients that do or do not use it."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from select import select as wait_readable

import pytest

from ottla.broker.net.connection import Connection
from ottla.broker.net.limits import LOGIN_MS, LOGINS_PENDING_PER_ADDRESS_MAX, SWEEP_INTERVAL_MS
from ottla.broker.net.listener import ConnectionLimits, Listener, ListenerSecurity, bind
from ottla.broker.security.tls_server import TlsServer
from ottla.model.settings import BrokerSettings
from ottla.protocol.primitives import RequestBytes
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import FileRun
from ottla.runtime.posix_disk import PosixDisk
from tests.unit.broker.security.tls_files import HOST, TlsFiles
from tests.unit.broker.turned_loop import TurnedLoop

LARGE_BYTES = 3 * 1024 * 1024 + 17


class Echo:
    """A router that answers each request with its own bytes, or with a run of a file."""

    def __init__(self) -> None:
        self.run: FileRun | None = None
        self.connections: list[Connection] = []

    def route(self, connection: Connection, buffer: RequestBytes, view: memoryview, position: int, end: int) -> None:
        self.connections.append(connection)
        if self.run is None:
            connection.answer_now(bytes(view[position:end]))
        else:
            connection.answer_pieces((b"head", self.run, b"tail"))


class Served:
    def __init__(self, folder: Path, *, uses_tls: bool = True, **settings: str) -> None:
        self.files = TlsFiles(folder)
        self.loop = TurnedLoop()
        self.router = Echo()
        texts = {"ssl.keystore.location": self.files.keystore, "ssl.truststore.location": self.files.ca}
        own = BrokerSettings.of({**texts, **{name.replace("_", "."): text for name, text in settings.items()}})
        tls = TlsServer(own, "SSL", SystemClock().now_ms) if uses_tls else None
        self.listener = Listener(
            bind("127.0.0.1", 0),
            self.loop,  # type: ignore[arg-type]  # the part of a loop that it uses
            self.router,
            ConnectionLimits(2_000, 8 << 20, -1, -1, -1),
            lambda: None,
            security=ListenerSecurity("SSL" if uses_tls else "PLAINTEXT", tls),
        )
        self.listener.start()
        self.sockets: list[socket.socket] = []

    def connect(self) -> socket.socket:
        plain = socket.create_connection(self.listener.address)
        plain.setblocking(False)
        self.sockets.append(plain)
        self.loop.turn()
        return plain

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.files.ca)

    def client(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        """Connected, with its handshake done."""
        plain = self.connect()
        tls = (context or self.context()).wrap_socket(plain, server_hostname=HOST, do_handshake_on_connect=False)
        self.sockets[-1] = tls
        for _ in range(20):
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self.loop.turn()
            else:
                self.loop.turn()
                return tls
        raise AssertionError("the handshake does not end")

    def exchange(self, tls: ssl.SSLSocket, request: bytes, response_bytes: int) -> bytes:
        received, unsent = bytearray(), memoryview(request)
        for _ in range(100_000):
            try:
                if unsent:
                    unsent = unsent[tls.send(unsent) :]
                elif len(received) < response_bytes:
                    received += tls.recv(1 << 16)
                else:
                    return bytes(received)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self.loop.turn()
        raise AssertionError("the exchange does not end")

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms // SWEEP_INTERVAL_MS):
            self.loop.advance(SWEEP_INTERVAL_MS / 1000)

    def close(self) -> None:
        self.listener.begin_drain()
        for connection in list(self.listener._connections):
            connection.close("the test ended")
        self.listener.stop_accepting()
        for each in self.sockets:
            each.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def is_closed(client: socket.socket) -> bool:
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


@pytest.mark.parametrize("size_bytes", [8, 5_000, 16_384, 16_385, 300_000, LARGE_BYTES])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_of_any_size_are_answered(served: Served, size_bytes: int, version: ssl.TLSVersion) -> None:
    context = served.context()
    context.minimum_version = context.maximum_version = version
    client = served.client(context)
    body = os.urandom(size_bytes)
    assert served.exchange(client, framed(body), size_bytes) == body
    # Several at once, in one record.
    assert served.exchange(client, framed(b"one.....") + framed(b"two....."), 16) == b"one.....two....."


def test_pipelined_requests_of_a_record_each_are_taken_at_one_wake_up(served: Served) -> None:
    client = served.client()
    assert served.exchange(client, framed(b"first..."), 8) == b"first..."
    [connection] = served.router.connections
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(10):
        client.send(framed(b"request%d" % number))
    wait_readable([connection._socket], [], [])
    served.loop.readers[connection._socket.fileno()]()
    assert len(served.router.connections) == 1 + 10


@pytest.mark.parametrize("length_bytes", [1_000, 60_000, LARGE_BYTES])
def test_runs_of_files_are_encrypted(served: Served, tmp_path: Path, length_bytes: int) -> None:
    content = os.urandom(length_bytes + 10)
    (tmp_path / "segment").write_bytes(content)
    file = PosixDisk().open(str(tmp_path / "segment"))
    served.router.run = FileRun(file, 5, length_bytes)
    client = served.client()
    expected = b"head" + content[5 : 5 + length_bytes] + b"tail"
    assert served.exchange(client, framed(bytes(8)), len(expected)) == expected


def test_peer_that_does_not_read_holds_no_copy_of_a_file(served: Served, tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(bytes(4 * LARGE_BYTES))
    file = PosixDisk().open(str(tmp_path / "segment"))
    served.router.run = FileRun(file, 0, 4 * LARGE_BYTES)
    client = served.client()
    client.send(framed(bytes(8)))
    served.loop.turn()
    [connection] = served.router.connections
    assert connection.has_unanswered
    [run, tail] = connection._outbox.unsent
    assert isinstance(run, FileRun)
    assert tail == b"tail"


def test_plain_client_is_closed_with_a_hint(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    plain = served.connect()
    plain.send(bytes.fromhex("0000001e00120003000000010000") + bytes(20))
    served.loop.turn()
    assert is_closed(plain)
    [record] = caplog.records
    facts = record.ottla_facts  # type: ignore[attr-defined]
    assert facts["error"] == "the client does not use TLS"
    assert "security.protocol=SSL" in facts["hint"]


def test_client_with_tls_on_a_plain_port_is_closed_with_a_hint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path, uses_tls=False)
    client = served.context().wrap_socket(served.connect(), server_hostname=HOST, do_handshake_on_connect=False)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    served.loop.turn()
    served.sockets[-1] = client
    with pytest.raises(OSError):
        client.do_handshake()
    [record] = caplog.records
    assert "the client uses TLS, and the listener PLAINTEXT does not" in record.ottla_facts["error"]  # type: ignore[attr-defined]
    served.close()


def test_client_that_distrusts_the_certificate_is_reported(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        served.client(ssl.create_default_context())
    served.loop.turn()
    facts = caplog.records[0].ottla_facts  # type: ignore[attr-defined]
    assert facts["error"] == "the client does not accept this broker's certificate"


def test_unfinished_handshake_is_closed_in_time(served: Served) -> None:
    half = served.connect()
    half.send(bytes.fromhex("160301"))
    served.pass_time(LOGIN_MS)
    assert not is_closed(half)
    served.pass_time(2 * SWEEP_INTERVAL_MS)
    assert is_closed(half)


def test_client_connects_beside_a_thousand_unfinished_handshakes(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for _ in range(LOGINS_PENDING_PER_ADDRESS_MAX + 50):
        served.connect().send(bytes.fromhex("160301"))
    client = served.client()
    assert served.exchange(client, framed(b"request."), 8) == b"request."
    assert len(served.listener._pending) < LOGINS_PENDING_PER_ADDRESS_MAX + 1


def test_certificate_of_a_client_is_its_principal(tmp_path: Path) -> None:
    served = Served(tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/")
    context = served.context()
    context.load_cert_chain(served.files.write("alice.pem", served.files.issue(name="alice")))
    client = served.client(context)
    assert served.exchange(client, framed(b"request."), 8) == b"request."
    [connection] = served.router.connections
    assert (connection.principal, connection.listener_name) == ("User:alice", "SSL")
    served.close()


@pytest.mark.parametrize(
    ("shown", "problem"),
    [
        ("", "the client has no certificate"),
        ("foreign", "the client's certificate was refused"),
        ("expired", "the client's certificate was refused: certificate has expired"),
    ],
)
def test_client_without_a_valid_certificate_of_the_authority_is_refused(
    tmp_path: Path, shown: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(tmp_path, ssl_client_auth="required")
    context = served.context()
    if shown == "expired":
        context.load_cert_chain(served.files.write("expired.pem", served.files.expired()))
    elif shown:
        (tmp_path / "foreign").mkdir()
        context.load_cert_chain(TlsFiles(tmp_path / "foreign").keystore)
    # In TLS 1.3 a client learns of it when it reads.
    client = served.client(context)
    with pytest.raises(OSError):
        served.exchange(client, framed(b"request."), 8)
    assert problem in caplog.records[0].ottla_facts["error"]  # type: ignore[attr-defined]
    assert served.router.connections == []
    served.close()


def test_client_without_a_certificate_is_anonymous_where_one_is_only_requested(tmp_path: Path) -> None:
    served = Served(tmp_path, ssl_client_auth="requested")
    assert served.exchange(served.client(), framed(b"request."), 8) == b"request."
    assert served.router.connections[0].principal == "User:ANONYMOUS"
    served.close()

"""TLS against a server of OpenSSL on loopback: what is trusted, and what each failure says."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.connection import Connection
from ottla.client.wire.errors import CallTimedOut, ConnectionLost, ListenerMismatch, TlsFailed
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.security.settings import SecretFile, TlsSettings
from ottla.client.wire.security.tls import TlsTransport, start_tls, tls_context
from ottla.client.wire.transport import TcpTransport, Transport, dial_tcp, wait_readable
from ottla.model.errors import ConfigError
from ottla.protocol.api import ApiKey
from ottla.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.security.mechanism import SaslMechanism
from ottla.testing.fake_clock import FakeClock
from tests.unit.client.fake_sasl import PASSWORD, USERNAME, FakeSasl
from tests.unit.client.secure_fake_broker import (
    HOST,
    SYSTEM_CLOCK,
    SecureFakeBroker,
    authority,
    certificate_of,
    foreign_authority,
    pem_of,
    server_context,
)

TLS = {"security.protocol": "SSL"}
LATE_MS = 100


def deadline(timeout_ms: int = 20_000) -> Deadline:
    return Deadline(SYSTEM_CLOCK, timeout_ms)


def connect(broker: SecureFakeBroker, names: Mapping[str, object]) -> Connection:
    options = ClientOptions(security=client_security(names))
    return Connection.open(broker.address, dial_tcp, options, SYSTEM_CLOCK, deadline())


def dialled(address: Address) -> TcpTransport:
    transport = dial_tcp(address)
    transport.connect(deadline())
    return transport


def ask_metadata(connection: Connection) -> str | None:
    request = MetadataRequest(topics=[])
    return connection.call(ApiKey.METADATA, request, MetadataResponse, deadline()).cluster_id


def trusting(ca: trustme.CA | None = None) -> dict[str, str]:
    return TLS | {"ssl.ca.pem": pem_of(ca or authority())}


def own_certificate(ca: trustme.CA | None = None) -> dict[str, str]:
    leaf = certificate_of("client", ca=ca)
    chain = "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)
    return {"ssl.certificate.pem": chain, "ssl.key.pem": leaf.private_key_pem.bytes().decode()}


def test_requests_are_answered_over_tls() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        connection = connect(broker, trusting())
        assert ask_metadata(connection) == "fake"
        connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(version: ssl.TLSVersion) -> None:
    context = server_context(certificate_of())
    context.minimum_version = context.maximum_version = version
    with SecureFakeBroker(context) as broker:
        connection = connect(broker, trusting())
        assert ask_metadata(connection) == "fake"
        connection.close()


@pytest.mark.parametrize("mechanism", [SaslMechanism.PLAIN, SaslMechanism.SCRAM_SHA_512])
def test_a_login_is_within_tls(mechanism: SaslMechanism) -> None:
    sasl = FakeSasl()
    names = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": USERNAME,
        "sasl.password": PASSWORD,
    }
    with SecureFakeBroker(server_context(certificate_of()), sasl) as broker:
        connection = connect(broker, trusting() | names)
        assert ask_metadata(connection) == "fake"
        connection.close()
    assert sasl.logins == [mechanism]


def test_large_requests_and_responses_pass() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        connection = connect(broker, trusting())
        topics = [f"unknown-{number:0200}" for number in range(4000)]
        answer = connection.call(
            ApiKey.METADATA,
            MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]),
            MetadataResponse,
            deadline(),
        )
        assert [topic.name for topic in answer.topics] == topics
        assert not connection.has_buffered()
        connection.close()


def test_a_foreign_certificate_is_refused_with_the_setting_that_trusts_one() -> None:
    with SecureFakeBroker(server_context(certificate_of(ca=foreign_authority()))) as broker:
        with pytest.raises(TlsFailed, match="is not trusted") as refused:
            connect(broker, trusting())
        assert "ssl.ca.location" in str(refused.value.hint)
        assert not refused.value.is_retriable


def test_the_authorities_of_the_system_do_not_sign_a_private_certificate() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker, pytest.raises(TlsFailed, match="not trusted"):
        connect(broker, TLS)


def test_an_expired_certificate_is_refused_by_name() -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    with SecureFakeBroker(server_context(certificate_of(not_after=yesterday))) as broker:
        with pytest.raises(TlsFailed, match="expired") as refused:
            connect(broker, trusting())
        assert "renew" in str(refused.value.hint)


def test_a_certificate_of_another_host_is_refused_unless_that_check_is_disabled() -> None:
    with SecureFakeBroker(server_context(certificate_of("kafka.example.org"))) as broker:
        with pytest.raises(TlsFailed, match="not trusted") as refused:
            connect(broker, trusting())
        assert HOST in str(refused.value.hint)
        connection = connect(broker, trusting() | {"ssl.endpoint.identification.algorithm": "none"})
        assert ask_metadata(connection) == "fake"
        connection.close()


def test_the_unsafe_setting_still_demands_a_trusted_authority() -> None:
    unsafe = trusting() | {"ssl_verify_hostname_unsafely_disabled": True}
    foreign = server_context(certificate_of(ca=foreign_authority()))
    with SecureFakeBroker(foreign) as broker, pytest.raises(TlsFailed, match="not trusted"):
        connect(broker, unsafe)


def test_a_client_certificate_is_presented() -> None:
    with SecureFakeBroker(server_context(certificate_of(), demands_certificate=True)) as broker:
        connection = connect(broker, trusting() | own_certificate())
        assert ask_metadata(connection) == "fake"
        connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_missing_client_certificate_is_named(version: ssl.TLSVersion) -> None:
    context = server_context(certificate_of(), demands_certificate=True)
    context.minimum_version = context.maximum_version = version
    with SecureFakeBroker(context) as broker:
        with pytest.raises(TlsFailed) as refused:
            connect(broker, trusting())
        assert "ssl.certificate.location" in str(refused.value.hint) or "client certificate" in str(refused.value.hint)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_that_the_broker_does_not_trust_is_named(version: ssl.TLSVersion) -> None:
    context = server_context(certificate_of(), demands_certificate=True)
    context.minimum_version = context.maximum_version = version
    with SecureFakeBroker(context) as broker, pytest.raises(TlsFailed, match="refused the client's certificate"):
        connect(broker, trusting() | own_certificate(foreign_authority()))


class Forwarding:
    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def connect(self, deadline: Deadline) -> None:
        self._inner.connect(deadline)

    def connect_wait_ms(self) -> float:
        return self._inner.connect_wait_ms()

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        self._inner.send(pieces, deadline)

    def finish_sending(self, deadline: Deadline) -> None:
        self._inner.finish_sending(deadline)

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        return self._inner.receive_into(buffer, deadline)

    def has_buffered(self) -> bool:
        return self._inner.has_buffered()

    def fileno(self) -> int:
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()


class ClosedForSending(Forwarding):
    """A transport whose peer has closed: what it sent before can be received."""

    is_closed_by_peer = False

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        if self.is_closed_by_peer:
            raise ConnectionLost("broken pipe")
        super().send(pieces, deadline)


def test_a_refusal_that_came_before_a_failed_request_is_reported() -> None:
    context = server_context(certificate_of(), demands_certificate=True)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with SecureFakeBroker(context) as broker:
        inner = ClosedForSending(dialled(broker.address))
        transport = secure(inner, broker.address, client_security(trusting()).tls, deadline())
        inner.is_closed_by_peer = True
        with pytest.raises(TlsFailed, match="demands a client certificate"):
            transport.send([b"request"], deadline())
        transport.close()


def secure(inner: Transport, address: Address, settings: TlsSettings, until: Deadline) -> TlsTransport:
    transport = start_tls(inner, address, settings)
    try:
        transport.shake_hands(until)
    except BaseException:
        transport.close()
        raise
    return transport


class Injected(Forwarding):
    """A transport from which another peer's bytes come when a test says so."""

    next_bytes = b""

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        if not self.next_bytes:
            return super().receive_into(buffer, deadline)
        count = len(self.next_bytes)
        buffer[:count] = self.next_bytes
        return count

    def has_buffered(self) -> bool:
        return False


@pytest.mark.parametrize("injected", [b"\x00\x00\x00\x10HTTP/1.1 400", b"\x17\x03\x03\x00\x20" + bytes(32)])
def test_bytes_that_are_not_of_the_peer_break_the_connection(injected: bytes) -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        inner = Injected(dialled(broker.address))
        transport = secure(inner, broker.address, client_security(trusting()).tls, deadline())
        inner.next_bytes = injected
        with pytest.raises(ConnectionLost) as lost:
            transport.receive_into(memoryview(bytearray(100)), deadline())
        assert lost.value.is_retriable
        transport.close()


def test_a_peer_that_answers_a_handshake_with_another_protocol_is_a_mismatch() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    try:
        with pytest.raises(ListenerMismatch, match="does not answer with TLS"):
            secure(TcpTransport(ours, Address(HOST, 1)), Address(HOST, 1), TlsSettings(), deadline())
    finally:
        theirs.close()


def test_tls_at_a_plain_listener_hints_at_the_protocol() -> None:
    with SecureFakeBroker() as broker:
        with pytest.raises(ConnectionLost, match="TLS handshake") as lost:
            connect(broker, trusting())
        assert "security.protocol" in str(lost.value.hint)


def test_a_plain_client_at_a_listener_with_tls_hints_at_the_protocol() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        with pytest.raises(ConnectionLost) as lost:
            connect(broker, {})
        assert "SASL_SSL" in str(lost.value.hint)


def test_a_broker_that_goes_away_is_a_lost_connection() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        connection = connect(broker, trusting())
        ask_metadata(connection)
    with pytest.raises(ConnectionLost) as lost:
        ask_metadata(connection)
    assert lost.value.is_retriable
    assert not connection.is_open


def test_a_handshake_without_an_answer_ends_with_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    address = Address(HOST, 1)
    try:
        with pytest.raises(CallTimedOut):
            Connection.open(
                address,
                lambda address: TcpTransport(ours, address),
                ClientOptions(security=client_security(trusting())),
                SYSTEM_CLOCK,
                deadline(20),
            )
        assert ours.fileno() == -1
    finally:
        theirs.close()


def test_a_handshake_on_a_slow_line_continues_after_each_deadline() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        options = ClientOptions(security=client_security(trusting()))
        slow = HeldBack(dialled(broker.address))
        connection = Connection.dial(broker.address, lambda _: slow, options, SYSTEM_CLOCK)
        cuts_count = 0
        while connection.is_opening:
            try:
                connection.finish_opening(deadline())
            except CallTimedOut:
                cuts_count += 1
        assert cuts_count >= 2  # the handshake, and the versions
        slow.is_slow = False
        assert ask_metadata(connection) == "fake"
        connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_connection_with_tls_is_opened_without_a_wait_of_its_own(version: ssl.TLSVersion) -> None:
    context = server_context(certificate_of())
    context.minimum_version = context.maximum_version = version
    with SecureFakeBroker(context) as broker:
        options = ClientOptions(security=client_security(trusting()))
        connection = Connection.dial(broker.address, dial_tcp, options, SYSTEM_CLOCK)
        assert connection.waits_to_write
        while not connection.continue_opening():
            assert wait_readable([connection], connection.opening_wait_ms) == [connection]
        assert ask_metadata(connection) == "fake"
        connection.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_handshake_whose_last_message_is_due_after_the_deadline_loses_none(
    version: ssl.TLSVersion,
) -> None:
    context = server_context(certificate_of())
    context.minimum_version = context.maximum_version = version
    clock = FakeClock()
    with SecureFakeBroker(context) as broker:
        options = ClientOptions(security=client_security(trusting()))
        late = LateAnswers(dialled(broker.address), clock)
        connection = Connection.dial(broker.address, lambda _: late, options, clock)
        connection.finish_opening(Deadline(clock, LATE_MS))
        answer = connection.call(ApiKey.METADATA, MetadataRequest(topics=[]), MetadataResponse, Deadline(clock, 10_000))
        assert answer.cluster_id == "fake"
        connection.close()


def test_a_handshake_of_which_a_part_could_not_be_sent_closes_the_connection() -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        options = ClientOptions(security=client_security(trusting()))
        full = Full(dialled(broker.address))
        connection = Connection.dial(broker.address, lambda _: full, options, SYSTEM_CLOCK)
        with pytest.raises(ConnectionLost, match="does not accept the TLS handshake in time"):
            connection.finish_opening(deadline())
        assert not connection.is_open


class LateAnswers(Forwarding):
    """The deadline of a call has passed when its answer is there."""

    def __init__(self, inner: Transport, clock: FakeClock) -> None:
        super().__init__(inner)
        self._clock = clock

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        super().send(pieces, Deadline(SYSTEM_CLOCK, 20_000))

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        self._clock.advance(LATE_MS)
        return super().receive_into(buffer, Deadline(SYSTEM_CLOCK, 20_000))


class Full(Forwarding):
    """It sends a part of what it gets."""

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        super().send([memoryview(piece).cast("B")[:20] for piece in pieces], deadline)
        raise CallTimedOut("the peer does not accept a request in time")


class HeldBack(Forwarding):
    """Bytes arrive for the second call that waits for them: the first one ends with its deadline."""

    is_slow = True

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self._has_waited = False

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        self._has_waited = self.is_slow and not self._has_waited
        if self._has_waited:
            raise CallTimedOut("nothing came in time")
        return super().receive_into(buffer, deadline)


def test_a_context_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(pem_of(authority()))
    settings = TlsSettings(ca=SecretFile(str(file)))
    first = tls_context(settings)
    assert tls_context(settings) is first
    file.write_text(pem_of(authority()) + pem_of(foreign_authority()))
    assert tls_context(settings) is not first


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    leaf = certificate_of("client")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret-of-key"),
    )
    both = tmp_path / "client.pem"
    both.write_bytes(encrypted + leaf.cert_chain_pems[0].bytes())
    names = trusting() | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    for password, reason in (("", "encrypted"), ("wrong", "cannot use")):
        with pytest.raises(ConfigError, match=reason) as refused:
            tls_context(client_security(names | {"ssl.key.password": password}).tls)
        assert refused.value.hint
    assert tls_context(client_security(names | {"ssl.key.password": "secret-of-key"}).tls)


@pytest.mark.parametrize("content", [b"\xfe\xed\xfe\xed\x00\x00\x00\x02", b"", b"no certificate"])
@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_file_that_is_not_pem_is_refused_with_the_settings_of_stores(
    name: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "store.jks"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="not PEM") as refused:
        tls_context(client_security(TLS | {name: str(file)}).tls)
    assert "ssl.truststore.location" in str(refused.value.hint)


def test_a_missing_file_fails_the_connection_without_a_retry(tmp_path: Path) -> None:
    with SecureFakeBroker(server_context(certificate_of())) as broker:
        with pytest.raises(TlsFailed, match="cannot read") as refused:
            connect(broker, TLS | {"ssl.ca.location": str(tmp_path / "ca.pem")})
        assert not refused.value.is_retriable


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*ca\.pem"):
        tls_context(client_security(TLS | {"ssl.ca.location": str(tmp_path / "ca.pem")}).tls)


def test_a_key_of_another_certificate_is_refused() -> None:
    mixed = own_certificate() | {"ssl.key.pem": own_certificate()["ssl.key.pem"]}
    with pytest.raises(ConfigError, match="cannot use"):
        tls_context(client_security(trusting() | mixed).tls)

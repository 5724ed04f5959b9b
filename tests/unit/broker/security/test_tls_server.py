"""The TLS of a listener: what its files must hold, and what happens when they change."""

from __future__ import annotations

import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from ottla.broker.security.tls_server import TlsServer
from ottla.model.errors import ConfigError, WireError
from ottla.model.settings import BrokerSettings
from ottla.runtime.clock import SystemClock
from ottla.testing.fake_clock import FakeClock
from tests.unit.broker.security.tls_files import TlsFiles


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def server(**settings: str) -> TlsServer:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return TlsServer(BrokerSettings.of(texts), "SSL", SystemClock().now_ms)


def serial_of(tls: TlsServer) -> object:
    """Of the certificate that a client of the next connection gets."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client = client_context.wrap_bio(outgoing, incoming)
    peer = tls.context.wrap_bio(incoming, outgoing, server_side=True)
    for side in (client, peer, client, peer):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True)


def test_certificate_and_key_may_be_one_file_two_files_or_texts(files: TlsFiles) -> None:
    text = Path(files.keystore).read_text()
    key = files.write("key.pem", text[: text.index("-----BEGIN CERT")].encode())
    assert server(ssl_keystore_location=files.keystore).days_left > 1
    assert server(ssl_keystore_certificate_chain=files.keystore, ssl_keystore_key=key).days_left > 1
    assert server(ssl_keystore_certificate_chain=text, ssl_keystore_key=text).days_left > 1


def test_listener_needs_a_certificate(files: TlsFiles) -> None:
    with pytest.raises(ConfigError, match="needs a certificate and its private key") as caught:
        server()
    assert "ssl.keystore.location" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("store.jks", b"\xfe\xed\xfe\xed\0\0", "is a JKS keystore"),
        ("store.p12", b"\x30\x82\x01\x02", "is a PKCS12 keystore"),
        ("empty.pem", b"", "has no PEM block"),
    ],
)
def test_stores_of_java_are_refused_with_the_command_that_converts_them(
    files: TlsFiles, name: str, content: bytes, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        server(ssl_keystore_location=files.write(name, content))
    assert "keytool -importkeystore" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.type=JKS is not offered"):
        server(ssl_keystore_type="JKS", ssl_keystore_location=files.keystore)


def test_missing_file_is_named(files: TlsFiles) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: cannot read /nowhere/x\.pem: No such file"):
        server(ssl_keystore_location="/nowhere/x.pem")


def test_key_of_another_certificate_is_refused(files: TlsFiles) -> None:
    other = files.write("other.pem", files.issue())
    with pytest.raises(ConfigError, match="does not belong to the certificate"):
        server(ssl_keystore_certificate_chain=files.keystore, ssl_keystore_key=other)


def test_expired_certificate_is_refused(files: TlsFiles) -> None:
    with pytest.raises(ConfigError, match=r"expired on 2021-01-01 00:00 UTC"):
        server(ssl_keystore_location=files.write("old.pem", files.expired()))


def test_encrypted_key_needs_its_password(files: TlsFiles) -> None:
    text = Path(files.keystore).read_bytes()
    key = serialization.load_pem_private_key(text, None)
    secret = serialization.BestAvailableEncryption(b"open")
    encrypted = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    path = files.write("encrypted.pem", encrypted + text[text.index(b"-----BEGIN CERT") :])
    with pytest.raises(ConfigError, match="is encrypted") as caught:
        server(ssl_keystore_location=path)
    assert "ssl.key.password" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="does not open the private key"):
        server(ssl_keystore_location=path, ssl_key_password="wrong")
    assert server(ssl_keystore_location=path, ssl_key_password="open").days_left > 1


def test_client_certificates_need_a_truststore(files: TlsFiles) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth=required needs the CAs") as caught:
        server(ssl_keystore_location=files.keystore, ssl_client_auth="required")
    assert "ssl.truststore.location" in (caught.value.hint or "")


def test_principal_is_the_name_of_the_client_certificate(files: TlsFiles) -> None:
    der = ssl.PEM_cert_to_DER_cert(
        files.authority.issue_cert("x", common_name="alice").cert_chain_pems[0].bytes().decode()
    )
    tls = server(ssl_keystore_location=files.keystore, ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/")
    assert tls.principal_of(der) == "User:alice"
    assert tls.principal_of(None) == "User:ANONYMOUS"
    tls = server(ssl_keystore_location=files.keystore, ssl_principal_mapping_rules="RULE:^CN=bob$/bob/")
    with pytest.raises(WireError, match="no rule"):
        tls.principal_of(der)


def test_changed_file_serves_the_next_connections(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tls = server(ssl_keystore_location=files.keystore)
    first = serial_of(tls)
    tls.reload()
    assert serial_of(tls) == first
    files.write("broker.pem", files.issue())
    tls.reload()
    assert serial_of(tls) != first
    assert "certificate.loaded" in caplog.messages


def test_broken_file_leaves_the_former_certificate_and_is_reported_once(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    tls = server(ssl_keystore_location=files.keystore)
    first = serial_of(tls)
    files.write("broker.pem", b"half of a file")
    for _ in range(3):
        tls.reload()
    assert serial_of(tls) == first
    assert caplog.messages == ["certificate.kept"]
    os.unlink(files.keystore)
    tls.reload(is_forced=True)
    assert serial_of(tls) == first


def test_certificate_that_expires_soon_is_reported_once_a_day(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    path = files.write("soon.pem", files.issue(datetime.now(UTC) + timedelta(days=10, hours=1)))
    clock = FakeClock()
    clock.advance(SystemClock().now_ms() - clock.now_ms())
    tls = TlsServer(BrokerSettings.of({"ssl.keystore.location": path}), "SSL", clock.now_ms)
    tls.reload()
    clock.advance(86_400_000)
    tls.reload()
    tls.reload()
    assert caplog.messages == ["certificate.expires"] * 2

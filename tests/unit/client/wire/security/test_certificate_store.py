"""Stores of Java: PKCS12 of any content, JKS of trusted certificates."""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from ottla.client.wire.security.certificate_store import CertificateStore
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.security.tls import tls_context
from ottla.model.errors import ConfigError
from ottla.security.secret import Secret
from tests.unit.client.secure_fake_broker import authority, certificate_of, foreign_authority, pem_of

PASSWORD = "changeit"


def der_of_authority() -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem_of(authority()))


def jks(*certificates: bytes, kind: int = 2, password: str = PASSWORD) -> bytes:
    """As keytool writes it."""
    entries = b"".join(
        struct.pack(">I", kind) + _text(f"ca{number}") + bytes(8) + _text("X.509") + struct.pack(">I", len(each)) + each
        for number, each in enumerate(certificates)
    )
    content = struct.pack(">III", 0xFEEDFEED, 2, len(certificates)) + entries
    return content + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def pkcs12() -> bytes:
    leaf = certificate_of("client")
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    certificate = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    chain = [x509.load_der_x509_certificate(der_of_authority())]
    return serialize_key_and_certificates(
        b"client",
        key,
        certificate,
        chain,
        BestAvailableEncryption(PASSWORD.encode()),
    )


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_trusted_certificates_of_jks_are_read(password: str | None, tmp_path: Path) -> None:
    path = tmp_path / "truststore.jks"
    foreign = ssl.PEM_cert_to_DER_cert(pem_of(foreign_authority()))
    path.write_bytes(jks(der_of_authority(), foreign))
    store = CertificateStore(str(path), None if password is None else Secret(password))
    assert [ssl.PEM_cert_to_DER_cert(f"-----BEGIN{each}") for each in store.reveal().split("-----BEGIN")[1:]] == [
        der_of_authority(),
        foreign,
    ]


def test_a_key_and_its_certificates_of_pkcs12_are_read(tmp_path: Path) -> None:
    path = tmp_path / "client.p12"
    path.write_bytes(pkcs12())
    text = CertificateStore(str(path), Secret(PASSWORD)).reveal()
    assert text.count("BEGIN CERTIFICATE") == 2
    assert text.count("BEGIN PRIVATE KEY") == 1


def test_pem_is_read_from_a_store_too(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(pem_of(authority()))
    assert CertificateStore(str(path), Secret("unused")).reveal() == pem_of(authority())


def test_the_options_of_javas_clients_make_a_context(tmp_path: Path) -> None:
    (tmp_path / "truststore.jks").write_bytes(jks(der_of_authority()))
    (tmp_path / "client.p12").write_bytes(pkcs12())
    names = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "truststore.jks"),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "client.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    security = client_security(names)
    assert PASSWORD not in repr(security)
    context = tls_context(security.tls)
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize("content", [jks(der_of_authority()), pkcs12()], ids=["jks", "pkcs12"])
def test_a_wrong_password_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        CertificateStore(str(path), Secret("wrong")).reveal()
    assert "password" in str(refused.value.hint)


@pytest.mark.parametrize(
    "content",
    [b"", b"text", jks(der_of_authority())[:-40], jks(der_of_authority(), kind=1), jks()[:10], b"\x30\x80"],
)
def test_what_is_no_store_of_certificates_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        CertificateStore(str(path)).reveal()
    assert refused.value.hint


def test_a_missing_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        CertificateStore(str(tmp_path / "none")).reveal()

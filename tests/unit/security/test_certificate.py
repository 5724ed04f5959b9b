"""Certificates: their times, and their subjects as Java writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ottla.security.certificate import Certificate, CertificateDamaged
from tests.der_names import Attribute, certificate_of

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
END = datetime(2051, 6, 7, 8, 9, 10, tzinfo=UTC)


def der_of(name: x509.Name, start: datetime = START, end: datetime = END) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, start, end)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    return Certificate.parse(der_of(name)).subject


def test_times_are_read_before_and_after_2050() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    assert Certificate.parse(der_of(name)) == Certificate(START, END, "CN=alice")
    early = Certificate.parse(der_of(name, START, START + timedelta(days=1)))
    assert early.not_after == START + timedelta(days=1)


def test_subject_starts_with_the_last_attribute() -> None:
    assert (
        subject(
            (NameOID.COUNTRY_NAME, "AT"),
            (NameOID.ORGANIZATION_NAME, "Ottla"),
            (NameOID.ORGANIZATIONAL_UNIT_NAME, "Größe"),
            (NameOID.COMMON_NAME, "alice"),
        )
        == "CN=alice,OU=Größe,O=Ottla,C=AT"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        # A name that holds another one must not read as it.
        ("alice,O=Admins", "alice\\,O\\=Admins"),
        ("a+b", "a\\+b"),
        ('"quoted"', '\\"quoted\\"'),
        ("back\\slash", "back\\\\slash"),
        ("<a>;#", "\\<a\\>\\;\\#"),
        (" a b ", "\\ a b\\ "),
        ("  a", "\\ \\ a"),
        ("\ra \r", "\\\ra\\ \\\r"),
        ("a\nb", "a\nb"),
        ("a\0b", "a\\00b"),
    ],
)
def test_characters_that_divide_names_are_escaped(value: str, written: str) -> None:
    assert subject((NameOID.COMMON_NAME, value)) == f"CN={written}"


def test_attributes_that_rfc_2253_does_not_name_are_hexadecimal() -> None:
    written = subject((NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.COMMON_NAME, "alice"))
    assert written == "CN=alice,1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize("pairs", [("CN=a", "UID=7"), ("UID=7", "CN=a")])
def test_attributes_of_one_relative_name_are_joined_in_their_order(pairs: tuple[str, str]) -> None:
    kinds = {"CN": "2.5.4.3", "UID": "0.9.2342.19200300.100.1.1"}
    relative = [Attribute(kinds[kind], value.encode()) for kind, _, value in (pair.partition("=") for pair in pairs)]
    assert Certificate.parse(certificate_of([relative])).subject == "+".join(pairs)


@pytest.mark.parametrize(
    ("attribute", "written"),
    [
        (Attribute("2.5.4.3", "René".encode("latin-1"), 0x14), "CN=René"),
        (Attribute("2.5.4.3", "René".encode("utf-16-be"), 0x1E), "CN=René"),
        # As in Java a universal string has no text, nor has a number that RFC 2253 does not name.
        (Attribute("2.5.4.3", "a".encode("utf-32-be"), 0x1C), "CN=#1c0400000061"),
        (Attribute("2.5.4.5", b"7", 0x13), "2.5.4.5=#130137"),
    ],
)
def test_strings_are_read_by_their_types(attribute: Attribute, written: str) -> None:
    assert Certificate.parse(certificate_of([[attribute]])).subject == written


def test_text_that_is_not_in_its_encoding_is_damaged() -> None:
    """Java's text of it is that of other names."""
    with pytest.raises(CertificateDamaged):
        Certificate.parse(certificate_of([[Attribute("2.5.4.3", b"\xff")]]))


@pytest.mark.parametrize("length", [0, 1, 2, 20, 100])
def test_bytes_that_are_no_certificate_are_damaged(length: int) -> None:
    whole = der_of(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")]))
    with pytest.raises(CertificateDamaged):
        Certificate.parse(whole[:length])
    with pytest.raises(CertificateDamaged):
        Certificate.parse(b"\x30\x80" + whole[2:])

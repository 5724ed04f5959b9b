"""A certificate authority for the brokers of a cluster, and their certificates by it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.model.errors import ConfigError
from ottla.security.certificate import COMMON_NAME_LENGTH_MAX

_AUTHORITY_DAYS: Final = 10 * 365
# Browsers and Java accept no longer ones of public authorities; a private one may follow.
_BROKER_DAYS: Final = 365
# A client's clock may be behind.
_VALID_BEFORE: Final = timedelta(hours=1)


class Issued(NamedTuple):
    """PEM texts.  `broker` has the private key and the certificates, as `ssl.keystore.location` needs them."""

    authority: str
    authority_key: str
    broker: str


def issue(hosts: Sequence[str], now: datetime) -> Issued:
    """A new authority and a first certificate.  `hosts` as for `issue_certificate`."""
    key, name = ec.generate_private_key(ec.SECP256R1()), _name("Ottla CA")
    signing = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        _builder(name, name, key.public_key(), now, now + timedelta(days=_AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(_pem(authority), _pem_of_key(key), _issue(authority, key, hosts, now))


def issue_certificate(authority: str, authority_key: str, hosts: Sequence[str], now: datetime) -> str:
    """The private key and the certificate of a broker, as `ssl.keystore.location` needs them.

    `hosts`: its names and IP addresses, the first one its common name.  Raises `ConfigError` for an authority that
    cannot sign.
    """
    try:
        certificate = x509.load_pem_x509_certificate(authority.encode())
        key = serialization.load_pem_private_key(authority_key.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"the CA cannot be read: {error}", hint="it is in ca.pem and ca.key of `secure init`"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise ConfigError(
            "the CA's key does not belong to its certificate", hint="take ca.pem and ca.key of the same `secure init`"
        )
    if certificate.not_valid_after_utc <= now:
        raise ConfigError(
            f"the CA expired on {certificate.not_valid_after_utc:%Y-%m-%d}", hint="make another with `secure init`"
        )
    return _issue(certificate, key, hosts, now)


def _issue(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], now: datetime
) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    until = min(now + timedelta(days=_BROKER_DAYS), authority.not_valid_after_utc)
    certificate = (
        _builder(_name(hosts[0]), authority.subject, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return _pem_of_key(key) + _pem(certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID_BEFORE)
        .not_valid_after(until)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:COMMON_NAME_LENGTH_MAX])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()

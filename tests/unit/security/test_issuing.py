"""Certificates of an authority that exists already."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from ottla.model.errors import ConfigError
from ottla.security.issuing import issue, issue_certificate

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def certificate_in(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem[pem.index("-----BEGIN CERTIFICATE") :].encode())


def test_second_broker_gets_a_certificate_of_the_first_ones_authority() -> None:
    issued = issue(["b1.example"], NOW)
    second = certificate_in(issue_certificate(issued.authority, issued.authority_key, ["b2.example", "10.0.0.2"], NOW))
    second.verify_directly_issued_by(certificate_in(issued.authority))
    names = second.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["b2.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.2"]
    assert second.serial_number != certificate_in(issued.broker).serial_number


def test_certificate_does_not_outlive_its_authority() -> None:
    issued = issue(["b1.example"], NOW)
    end = certificate_in(issued.authority).not_valid_after_utc
    late = end - timedelta(days=3)
    second = certificate_in(issue_certificate(issued.authority, issued.authority_key, ["b2.example"], late))
    assert second.not_valid_after_utc == end


def test_expired_authority_signs_nothing() -> None:
    issued = issue(["b1.example"], NOW)
    end = certificate_in(issued.authority).not_valid_after_utc
    with pytest.raises(ConfigError, match="the CA expired"):
        issue_certificate(issued.authority, issued.authority_key, ["b2.example"], end)


@pytest.mark.parametrize(
    ("authority", "key", "problem"),
    [
        (issue(["a"], NOW).authority, issue(["b"], NOW).authority_key, "does not belong"),
        ("text", issue(["b"], NOW).authority_key, "cannot be read"),
        (issue(["a"], NOW).authority, "text", "cannot be read"),
    ],
)
def test_authority_needs_its_own_certificate_and_key(authority: str, key: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        issue_certificate(authority, key, ["b2.example"], NOW)


def test_python_loads_the_certificate_and_its_authority(tmp_path_factory: pytest.TempPathFactory) -> None:
    issued = issue(["b1.example"], NOW)
    keystore = tmp_path_factory.mktemp("keys") / "broker.pem"
    keystore.write_text(issue_certificate(issued.authority, issued.authority_key, ["b2.example"], NOW))
    context = ssl.create_default_context(cadata=issued.authority)
    context.load_cert_chain(keystore)
    assert context.get_ca_certs()

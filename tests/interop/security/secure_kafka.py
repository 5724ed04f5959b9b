"""One Apache Kafka with a listener for each security protocol and mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

from tests.interop.security.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.peers.apache_kafka import HOST, ApacheKafka
from tests.peers.pem_keystore import pem_keystore

USERNAME: Final = "alice"
PASSWORD: Final = "geheim-17=x"
# Sessions of the listener SHORT end after this.
SESSION_MS: Final = 2_000

_LISTENERS: Final = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
}
_MODULES: Final = "org.apache.kafka.common.security"
_PLAIN: Final = f'{_MODULES}.plain.PlainLoginModule required user_{USERNAME}="{PASSWORD}";'
_SCRAM: Final = f"{_MODULES}.scram.ScramLoginModule required;"
_BEARER: Final = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"


@dataclass(frozen=True)
class SecureKafka:
    kafka: ApacheKafka
    authority: trustme.CA
    provider: IdentityProvider
    ca_path: Path

    def address(self, listener: str) -> str:
        return self.kafka.bootstrap if listener == "PLAINTEXT" else self.kafka.addresses[listener]

    def client_certificate(self, ca: trustme.CA | None = None) -> dict[str, str]:
        leaf = (ca or self.authority).issue_cert("client.example.org")
        chain = "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)
        return {"ssl.certificate.pem": chain, "ssl.key.pem": leaf.private_key_pem.bytes().decode()}


@contextmanager
def secure_kafka(directory: Path) -> Iterator[SecureKafka]:
    """Raises KafkaUnavailable where it is unavailable."""
    authority = trustme.CA(organization_name="of these tests")
    ca_path, keystore, keys = directory / "ca.pem", directory / "broker.pem", directory / "jwks.json"
    authority.cert_pem.write_to_path(str(ca_path))
    leaf = authority.issue_cert(HOST, "localhost")
    keystore.write_bytes(pem_keystore(leaf))
    with IdentityProvider() as provider:
        provider.write_keys(keys)
        kafka = ApacheKafka(
            _properties(ca_path, keystore, keys),
            listeners=_LISTENERS,
            format_arguments=[
                argument
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                for argument in ("--add-scram", f'{mechanism}=[name="{USERNAME}",password="{PASSWORD}"]')
            ],
            jvm_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"],
        )
        with kafka:
            yield SecureKafka(kafka, authority, provider, ca_path)


def _properties(ca_path: Path, keystore: Path, keys: Path) -> Mapping[str, str]:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca_path),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": _BEARER,
    }
    for listener in ("sasl_plaintext", "sasl_ssl", "short"):
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = _PLAIN
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = _SCRAM
    return properties

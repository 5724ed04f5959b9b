"""A broker's key and certificates as one PEM file, which Ottla and Apache Kafka read alike."""

from __future__ import annotations

import trustme
from cryptography.hazmat.primitives import serialization


def pem_keystore(leaf: trustme.LeafCert) -> bytes:
    # Apache Kafka reads keys in this form only.
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pkcs8 + b"".join(blob.bytes() for blob in leaf.cert_chain_pems)

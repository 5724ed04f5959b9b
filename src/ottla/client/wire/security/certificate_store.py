"""Java's stores of certificates, as PEM: PKCS12 whole, JKS as far as it holds trusted certificates.

A private key in a JKS file is protected in a way of Java's own; keytool converts it to PKCS12.
"""

from __future__ import annotations

import struct
from base64 import encodebytes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.client.wire.security.settings import SecretText
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.runtime.installed import require_modules

_STORE_BYTES_MAX: Final = 16 * MIB
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_JKS_HEAD: Final = struct.Struct(">4sII")
_JKS_TRUSTED: Final = 2
_JKS_DIGEST_BYTES: Final = 20
# What Java adds to the password before the digest.
_JKS_SALT: Final = b"Mighty Aphrodite"
# The first byte of DER: a sequence.
_DER: Final = b"\x30"
_PEM_MARK: Final = b"-----BEGIN "
_CONVERT_HINT: Final = (
    "convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12"
)
_PASSWORD_HINT: Final = "is ssl.truststore.password, or ssl.keystore.password, right?"


@dataclass(frozen=True, slots=True)
class CertificateStore:
    """A file of JKS, PKCS12 or PEM, recognised by its content, read at each use."""

    path: str
    password: SecretText | None = None

    def reveal(self) -> str:
        """Its key, where it has one, and its certificates, as PEM.  Raises ConfigError."""
        data = self._read()
        if _PEM_MARK in data:
            return data.decode(errors="replace")
        if data.startswith(_JKS_MAGIC):
            try:
                return "".join(_pem(certificate) for certificate in self._certificates_of_jks(data))
            except (struct.error, IndexError) as error:
                raise ConfigError(f"{self.path} ends within an entry", hint=_CONVERT_HINT) from error
        if data.startswith(_DER):
            return self._pem_of_pkcs12(data)
        raise ConfigError(f"{self.path} is neither PEM nor a store of Java", hint="give PEM, PKCS12 or JKS")

    def _read(self) -> bytes:
        try:
            with Path(self.path).open("rb") as file:
                data = file.read(_STORE_BYTES_MAX + 1)
        except OSError as error:
            raise ConfigError(
                f"cannot read {self.path}: {error.strerror}", hint="name a file that you may read"
            ) from error
        if len(data) > _STORE_BYTES_MAX:
            raise ConfigError(f"{self.path} is larger than {_STORE_BYTES_MAX} bytes", hint="is it a certificate store?")
        return data

    def _certificates_of_jks(self, data: bytes) -> Iterator[bytes]:
        """The DER of each; the password proves that the file was not changed, and without one nothing does, as in
        Java."""
        content = data[:-_JKS_DIGEST_BYTES]
        if self.password is not None:
            # Imported late: it loads OpenSSL.
            import hashlib
            import hmac

            salted = self.password.reveal().encode("utf-16-be") + _JKS_SALT + content
            digest = hashlib.sha1(salted, usedforsecurity=False).digest()
            if not hmac.compare_digest(digest, data[-_JKS_DIGEST_BYTES:]):
                raise ConfigError(f"the password does not open {self.path}", hint=_PASSWORD_HINT)
        _, version, count = _JKS_HEAD.unpack_from(content)
        position = _JKS_HEAD.size
        for _ in range(count):
            (kind,) = struct.unpack_from(">I", content, position)
            if kind != _JKS_TRUSTED:
                raise ConfigError(f"{self.path} is a JKS file with a private key", hint=_CONVERT_HINT)
            (alias_bytes,) = struct.unpack_from(">H", content, position + 4)
            position += 4 + 2 + alias_bytes + 8  # the time of creation
            if version > 1:
                (type_bytes,) = struct.unpack_from(">H", content, position)
                position += 2 + type_bytes
            (certificate_bytes,) = struct.unpack_from(">I", content, position)
            position += 4
            if position + certificate_bytes > len(content):
                raise IndexError(position)
            yield content[position : position + certificate_bytes]
            position += certificate_bytes

    def _pem_of_pkcs12(self, data: bytes) -> str:
        require_modules("a PKCS12 store", ["cryptography"], "security")
        # Imported late: PEM needs none of it.
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

        password = None if self.password is None else self.password.reveal().encode()
        try:
            store = load_pkcs12(data, password)
        except ValueError as error:
            raise ConfigError(f"cannot open the PKCS12 store {self.path}: {error}", hint=_PASSWORD_HINT) from None
        key = b""
        if store.key is not None:
            key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        found = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
        return (key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found)).decode()


def _pem(certificate: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{encodebytes(certificate).decode()}-----END CERTIFICATE-----\n"

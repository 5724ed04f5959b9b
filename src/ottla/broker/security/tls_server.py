"""The TLS of one listener: its certificate, its trusted CAs and the principals of its clients.

A changed file is loaded for later connections.  If it cannot be used, the former one stays in force.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from ottla.model import security_settings as setting
from ottla.model.errors import ConfigError, OttlaError, WireError
from ottla.model.setting import Setting
from ottla.model.settings import BrokerSettings
from ottla.observe.events import fields
from ottla.security.acl import ANONYMOUS
from ottla.security.certificate import Certificate
from ottla.security.principal_mapping import PrincipalMapping

log = logging.getLogger(__name__)

_PEM_MARK: Final = "-----BEGIN"
_PEM_BYTES_MAX: Final = 1024 * 1024
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_DER_MAGIC: Final = b"\x30\x82"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    setting.CLIENT_AUTH_NONE: ssl.CERT_NONE,
    setting.CLIENT_AUTH_REQUESTED: ssl.CERT_OPTIONAL,
    setting.CLIENT_AUTH_REQUIRED: ssl.CERT_REQUIRED,
}
DAYS_LEFT_WARNING: Final = 30
_DAY_S: Final = 86_400
_CERTIFICATE: Final = "CERTIFICATE"


class _Material(NamedTuple):
    """The PEM texts of a listener, and the files that they are from."""

    certificates: str
    key: str
    trusted: str | None
    # Path, modification time in ns, inode and size of each.
    files: tuple[tuple[str, int, int, int], ...]


class TlsServer:
    """Constructed at the start: raises `ConfigError` when something is missing or does not fit."""

    def __init__(self, settings: BrokerSettings, listener: str, now_ms: Callable[[], int]) -> None:
        """`settings` are those of the listener."""
        self._settings: Final = settings
        self.listener: Final = listener
        self._now_ms: Final = now_ms
        self._mapping: Final = PrincipalMapping.parse(settings[setting.SSL_PRINCIPAL_MAPPING_RULES])
        self._failed: tuple[tuple[str, int, int, int], ...] | None = None
        self._warned_days = DAYS_LEFT_WARNING + 1
        self._material = _read(settings)
        self._context, self._not_after = self._load(self._material)
        self._peer_context: ssl.SSLContext | None = None
        self._warn_of_expiry()

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    @property
    def peer_context(self) -> ssl.SSLContext:
        """For the next connection to another broker: its name is verified, and this broker's certificate is shown."""
        if self._peer_context is None:
            context = ssl.create_default_context(cadata=self._material.trusted)
            context.minimum_version, context.maximum_version = _versions(self._settings)
            _load_chain(context, self._material, self._settings[setting.SSL_KEY_PASSWORD])
            self._peer_context = context
        return self._peer_context

    @property
    def days_left(self) -> float:
        """Until the certificate expires."""
        return (self._not_after.timestamp() - self._now_ms() / 1_000) / _DAY_S

    def principal_of(self, der: bytes | None) -> str:
        """The principal of a client with this certificate, which is verified.  Raises `WireError` when no rule maps its
        name."""
        if der is None:
            return ANONYMOUS
        try:
            subject = Certificate.parse(der).subject
        except OttlaError as error:
            raise WireError(str(error)) from error
        name = self._mapping.name_of(subject)
        if not name:
            raise WireError(f"no rule of ssl.principal.mapping.rules maps the name {subject!r}")
        return f"User:{name}"

    def reload(self, *, is_forced: bool = False) -> None:
        """Load files that have changed since; all, when it `is_forced`."""
        self._warn_of_expiry()
        try:
            files = tuple(_identity(path) for path in _paths(self._settings))
            if not is_forced and files in (self._material.files, self._failed):
                return
            self._failed = files
            material = _read(self._settings)
            context, not_after = self._load(material)
        except (ConfigError, OSError) as error:
            facts = fields(listener=self.listener, error=error, hint=getattr(error, "hint", None))
            log.error("certificate.kept", extra=facts)
            return
        self._material, self._context, self._not_after, self._failed = material, context, not_after, None
        self._peer_context = None
        self._warned_days = DAYS_LEFT_WARNING + 1
        log.info("certificate.loaded", extra=fields(listener=self.listener, days_left=round(self.days_left, 1)))
        self._warn_of_expiry()

    def _load(self, material: _Material) -> tuple[ssl.SSLContext, datetime]:
        settings = self._settings
        leaf = _first_certificate(material.certificates)
        now = datetime.fromtimestamp(self._now_ms() / 1_000, UTC)
        if leaf.not_after <= now:
            raise ConfigError(
                f"the certificate of listener {self.listener} expired on {leaf.not_after:%Y-%m-%d %H:%M} UTC",
                hint="renew it, and write it with its key to ssl.keystore.location",
            )
        if leaf.not_before > now:
            raise ConfigError(
                f"the certificate of listener {self.listener} is not valid before {leaf.not_before:%Y-%m-%d %H:%M} UTC",
                hint="is the clock of this machine right?",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = _versions(settings)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        _load_chain(context, material, settings[setting.SSL_KEY_PASSWORD])
        context.verify_mode = _VERIFY[settings[setting.SSL_CLIENT_AUTH]]
        if context.verify_mode is not ssl.CERT_NONE:
            if material.trusted is None:
                raise ConfigError(
                    f"ssl.client.auth={settings[setting.SSL_CLIENT_AUTH]} needs the CAs of the clients' certificates",
                    hint="set ssl.truststore.location to a PEM file with them",
                )
            try:
                context.load_verify_locations(cadata=material.trusted)
            except ssl.SSLError as error:
                raise ConfigError(f"the truststore holds no usable certificate: {error.reason or error}") from None
        return context, leaf.not_after

    def _warn_of_expiry(self) -> None:
        """Once a day, from `DAYS_LEFT_WARNING` days before the end."""
        days = int(self.days_left)
        if days < self._warned_days and days <= DAYS_LEFT_WARNING:
            self._warned_days = days
            facts = fields(listener=self.listener, days_left=days, expires=f"{self._not_after:%Y-%m-%d}")
            log.warning("certificate.expires", extra=facts)


def _versions(settings: BrokerSettings) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    """The lowest and the highest."""
    versions = [_VERSIONS[name] for name in settings[setting.SSL_ENABLED_PROTOCOLS]]
    if not versions:
        raise ConfigError("ssl.enabled.protocols is empty", hint="name TLSv1.3, TLSv1.2 or both")
    return min(versions), max(versions)


def _read(settings: BrokerSettings) -> _Material:
    for kind in (setting.SSL_KEYSTORE_TYPE, setting.SSL_TRUSTSTORE_TYPE):
        if settings[kind].upper() != setting.PEM:
            raise ConfigError(f"{kind.name}={settings[kind]} is not offered, only PEM", hint=_conversion("STORE"))
    files = tuple(_identity(path) for path in _paths(settings))
    location = settings[setting.SSL_KEYSTORE_LOCATION]
    trusted = _text(settings, setting.SSL_TRUSTSTORE_LOCATION) or _text(settings, setting.SSL_TRUSTSTORE_CERTIFICATES)
    if location is not None:
        text = _text(settings, setting.SSL_KEYSTORE_LOCATION) or ""
        return _Material(text, text, trusted, files)
    chain = _text(settings, setting.SSL_KEYSTORE_CERTIFICATE_CHAIN)
    key = _text(settings, setting.SSL_KEYSTORE_KEY)
    if chain is None or key is None:
        raise ConfigError(
            "a TLS listener needs a certificate and its private key",
            hint="set ssl.keystore.location to a PEM file with both, or ssl.keystore.certificate.chain and "
            "ssl.keystore.key",
        )
    return _Material(chain, key, trusted, files)


_FILES: Final[tuple[Setting[str | None], ...]] = (
    setting.SSL_KEYSTORE_LOCATION,
    setting.SSL_KEYSTORE_CERTIFICATE_CHAIN,
    setting.SSL_KEYSTORE_KEY,
    setting.SSL_TRUSTSTORE_LOCATION,
    setting.SSL_TRUSTSTORE_CERTIFICATES,
)


def _paths(settings: BrokerSettings) -> Iterator[str]:
    for each in _FILES:
        value = settings[each]
        if value is not None and _PEM_MARK not in value:
            yield value


def _identity(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_ino, found.st_size


def _text(settings: BrokerSettings, source: Setting[str | None]) -> str | None:
    """PEM text, which is the value itself or the content of the file that it names."""
    value = settings[source]
    if value is None or _PEM_MARK in value:
        return None if value is None else value.replace("\\n", "\n")
    try:
        with open(value, "rb") as file:
            data = file.read(_PEM_BYTES_MAX)
    except OSError as error:
        # A value that is neither PEM nor a path may be a damaged key: it is not shown.
        shown = "its file" if source.is_sensitive and "/" not in value else value
        raise ConfigError(f"{source.name}: cannot read {shown}: {error.strerror or error}") from None
    if data.startswith((_JKS_MAGIC, _DER_MAGIC)):
        kind = "a JKS keystore" if data.startswith(_JKS_MAGIC) else "a PKCS12 keystore or DER, not PEM"
        raise ConfigError(f"{source.name}: {value} is {kind}", hint=_conversion(value))
    text = data.decode("utf-8", errors="replace")
    if _PEM_MARK not in text:
        raise ConfigError(f"{source.name}: {value} has no PEM block ({_PEM_MARK} ...)", hint=_conversion(value))
    return text


def _conversion(store: str) -> str:
    return (
        f"convert it: keytool -importkeystore -srckeystore {store} -destkeystore store.p12 -deststoretype PKCS12; "
        "openssl pkcs12 -in store.p12 -nodes -out store.pem"
    )


def _first_certificate(text: str) -> Certificate:
    start = text.find(f"{_PEM_MARK} {_CERTIFICATE}-----")
    end_mark = f"-----END {_CERTIFICATE}-----"
    end = text.find(end_mark, start)
    if start < 0 or end < 0:
        raise ConfigError("the keystore has no certificate", hint=f"it needs a block {_PEM_MARK} {_CERTIFICATE}-----")
    try:
        return Certificate.parse(ssl.PEM_cert_to_DER_cert(text[start : end + len(end_mark)]))
    except (OttlaError, ValueError) as error:
        raise ConfigError(f"the first certificate of the keystore cannot be read: {error}") from None


def _load_chain(context: ssl.SSLContext, material: _Material, password: str | None) -> None:
    if "PRIVATE KEY-----" not in material.key:
        raise ConfigError("the keystore has no private key", hint=f"it needs a block {_PEM_MARK} PRIVATE KEY-----")

    def require_password() -> str:
        raise ConfigError("the private key is encrypted", hint="set ssl.key.password")

    try:
        with _file_of(material.certificates) as chain, _file_of(material.key) as key:
            context.load_cert_chain(chain, key, require_password if password is None else password)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                "the private key does not belong to the certificate",
                hint="the first certificate of the file must be that of the key, followed by intermediate CAs",
            ) from None
        if "ENCRYPTED" in material.key:
            raise ConfigError("ssl.key.password does not open the private key") from None
        raise ConfigError(f"the certificate and key cannot be used: {reason}") from None


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[str]:
    """A path with this content while it is open: OpenSSL reads keys from files only.  On Linux it is in memory."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pem")
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            yield f"/proc/self/fd/{fd}"
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        yield file.name

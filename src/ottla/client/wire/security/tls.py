"""TLS over a transport: contexts, the handshake, records, and what a failure means."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NoReturn

from typing_extensions import Buffer

from ottla.client.wire.address import Address
from ottla.client.wire.errors import CallTimedOut, ClientError, ConnectionLost, ListenerMismatch, TlsFailed
from ottla.client.wire.retrying import Deadline
from ottla.client.wire.security.certificate_store import CertificateStore
from ottla.client.wire.security.settings import PemSource, SecretFile, SecretText, TlsSettings
from ottla.client.wire.transport import Transport
from ottla.model.errors import ConfigError
from ottla.model.limits import KIB

# What is read from the socket at once; a record has at most 16 KiB.
_RECEIVED_BYTES: Final = 128 * KIB
# Plain bytes that are encrypted before they are sent: bounds the memory for a large request.
_ENCRYPTED_BYTES_MAX: Final = 256 * KIB
# Pieces of a request up to this size become one record.
_JOINED_BYTES_MAX: Final = 16 * KIB
_CONTEXTS_MAX: Final = 16
_PEM_MARK: Final = "-----BEGIN "
_NOT_PEM_HINT: Final = (
    "PEM text starts with -----BEGIN; a JKS or PKCS12 store is named by ssl.truststore.location or"
    " ssl.keystore.location, with its password"
)
_NO_TLS_HINT: Final = (
    "the listener seems to have no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT,"
    " or use the address of its SSL or SASL_SSL listener"
)
_NO_CERTIFICATE_HINT: Final = (
    "the listener demands a client certificate (ssl.client.auth=required):"
    " set ssl.certificate.location and ssl.key.location"
)
_BAD_CERTIFICATE_HINT: Final = (
    "the broker refused the client's certificate: is it valid now, and signed by an authority of the broker's"
    " truststore?"
)
_ANOTHER_PROTOCOL: Final = re.compile(r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER_FAILURE|UNEXPECTED_MESSAGE")
_ALERT_OF_CERTIFICATE: Final = re.compile(r"ALERT_(?:BAD_CERTIFICATE|CERTIFICATE_\w+|UNKNOWN_CA|UNSUPPORTED_CERT\w+)")
_CERTIFICATE_REQUIRED: Final = re.compile(r"ALERT_CERTIFICATE_REQUIRED")
# Of X509_V_ERR_ in OpenSSL.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_FOREIGN: Final = frozenset({2, 18, 19, 20, 21, 24, 26, 27})
_OTHER_HOST: Final = frozenset({62, 64})


class TlsTransport:
    """A `Transport` over another one, whose bytes it encrypts and decrypts.

    It sends no close_notify: Kafka's frames carry their length, so no peer takes a truncated stream for a whole one.
    """

    def __init__(
        self, inner: Transport, context: ssl.SSLContext, address: Address, *, has_certificate: bool = False
    ) -> None:
        self._inner = inner
        self._peer = address
        self._has_certificate = has_certificate
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=address.host)
        self._received = memoryview(bytearray(_RECEIVED_BYTES))
        self._is_open = False
        # Not encrypted yet.
        self._unsent: deque[memoryview] = deque()

    def connect(self, deadline: Deadline) -> None:
        self._inner.connect(deadline)

    def connect_wait_ms(self) -> float:
        return self._inner.connect_wait_ms()

    def shake_hands(self, deadline: Deadline) -> None:
        """Raises TlsFailed and ListenerMismatch, which no repetition helps, and ConnectionLost.

        After CallTimedOut it may be called again, and continues.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_handshake(deadline)
                try:
                    self._receive(deadline)
                except ConnectionLost as error:
                    raise ConnectionLost(
                        f"{self._peer} closed the connection during the TLS handshake", hint=_NO_TLS_HINT
                    ) from error
            except ssl.SSLError as error:
                with suppress(ClientError):
                    self._flush(deadline)  # the alert, which says in the broker's log why the client left
                self._raise(error)
            else:
                self._send_handshake(deadline)
                self._is_open = True
                return

    def send(self, pieces: Sequence[Buffer], deadline: Deadline) -> None:
        views = [memoryview(piece).cast("B") for piece in pieces]
        if sum(len(view) for view in views) <= _JOINED_BYTES_MAX:
            views = [memoryview(b"".join(views))]
        self._unsent += [
            view[start : start + _ENCRYPTED_BYTES_MAX]
            for view in views
            for start in range(0, len(view), _ENCRYPTED_BYTES_MAX)
        ]
        self.finish_sending(deadline)

    def finish_sending(self, deadline: Deadline) -> None:
        try:
            self._inner.finish_sending(deadline)
            while self._unsent:
                self._encrypt(self._unsent.popleft())
                if self._outgoing.pending >= _ENCRYPTED_BYTES_MAX:
                    self._flush(deadline)
            self._flush(deadline)
        except ssl.SSLError as error:
            self._raise(error)
        except ConnectionLost:
            self._raise_alert(deadline)
            raise

    def receive_into(self, buffer: memoryview, deadline: Deadline) -> int:
        while True:
            try:
                received: int = self._tls.read(len(buffer), buffer)  # type: ignore[assignment]  # a count, with a buffer
            except ssl.SSLWantReadError:
                self._flush(deadline)  # what the protocol itself answers, as to a change of keys
                self._receive(deadline)
            except ssl.SSLError as error:
                self._raise(error)
            else:
                if not received:
                    raise ConnectionLost(f"{self._peer} closed the connection")
                return received

    def has_buffered(self) -> bool:
        """Decrypted bytes are left, or records that were received with the last ones and not decrypted yet."""
        return self._tls.pending() > 0 or self._incoming.pending > 0

    def fileno(self) -> int:
        return self._inner.fileno()

    def close(self) -> None:
        self._unsent.clear()
        self._inner.close()

    def _encrypt(self, view: memoryview) -> None:
        while len(view):
            view = view[self._tls.write(view) :]

    def _receive(self, deadline: Deadline) -> None:
        count = self._inner.receive_into(self._received, deadline)
        self._incoming.write(self._received[:count])

    def _flush(self, deadline: Deadline) -> None:
        if self._outgoing.pending:
            self._inner.send([self._outgoing.read()], deadline)

    def _send_handshake(self, deadline: Deadline) -> None:
        """What is sent in part would be missing later, so the connection is lost."""
        try:
            self._flush(deadline)
        except CallTimedOut as error:
            raise ConnectionLost(f"{self._peer} does not accept the TLS handshake in time") from error

    def _raise_alert(self, deadline: Deadline) -> None:
        """Raises what the peer sent before it closed the connection: in TLS 1.3 it refuses a client's certificate after
        the client's handshake, maybe when the first request is on its way."""
        try:
            while True:
                self._receive(deadline)
                with suppress(ssl.SSLWantReadError):
                    self._tls.read(1)
        except ssl.SSLError as error:
            self._raise(error)
        except ClientError:
            return

    def _raise(self, error: ssl.SSLError) -> NoReturn:
        if not self._is_open and _ANOTHER_PROTOCOL.search(error.reason or ""):
            raise ListenerMismatch(f"{self._peer} does not answer with TLS", hint=_NO_TLS_HINT) from error
        raise _meaning(error, self._peer, has_certificate=self._has_certificate) from error


def start_tls(inner: Transport, address: Address, settings: TlsSettings) -> TlsTransport:
    """TLS over a connected transport, before its handshake; the transport is closed when there can be none."""
    try:
        context = tls_context(settings)
        return TlsTransport(inner, context, address, has_certificate=settings.certificate is not None)
    except ConfigError as error:  # of a file that cannot be used now
        inner.close()
        raise TlsFailed(str(error), hint=error.hint) from error
    except BaseException:
        inner.close()
        raise


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context is kept while no file of its certificates and keys changes."""
    sources = (settings.ca, settings.certificate, settings.key, settings.key_password)
    return _kept_context(settings, tuple(_stamp(source) for source in sources))


def _stamp(source: PemSource | None) -> tuple[int, ...]:
    if not isinstance(source, SecretFile | CertificateStore):
        return ()
    try:
        status = os.stat(source.path)
    except OSError as error:
        raise ConfigError(
            f"cannot read {source.path}: {error.strerror}", hint="name a PEM file that you may read"
        ) from error
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=_CONTEXTS_MAX)
def _kept_context(settings: TlsSettings, stamps: tuple[tuple[int, ...], ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.ssl_verify_hostname_unsafely_disabled:
        context.check_hostname = False
    if settings.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(context, settings.ca)
    if settings.certificate is not None:
        _load_certificate(context, settings.certificate, settings.key, settings.key_password)
    return context


def _load_authorities(context: ssl.SSLContext, ca: PemSource) -> None:
    if isinstance(ca, SecretFile) and os.path.isdir(ca.path):
        context.load_verify_locations(capath=ca.path)  # as c_rehash names its files
        return
    text = _pem(ca, "ssl.ca.location")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{_origin(ca)} holds no certificate of an authority: {error}", hint=_NOT_PEM_HINT) from error


def _load_certificate(
    context: ssl.SSLContext, certificate: PemSource, key: PemSource | None, password: SecretText | None
) -> None:
    def password_of_key() -> str:
        if password is None:
            raise ConfigError("the client's key is encrypted", hint="set ssl.key.password or ssl.key.password.file")
        return password.reveal()

    for source in (certificate, key):
        if source is not None:
            _pem(source, "ssl.certificate.location")
    with _as_path(certificate) as certificate_path, _as_path(key or certificate) as key_path:
        try:
            context.load_cert_chain(certificate_path, key_path, password_of_key)
        except (ssl.SSLError, OSError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else error.strerror or str(error)
            raise ConfigError(
                f"cannot use the client's certificate {_origin(certificate)} and key {_origin(key or certificate)}:"
                f" {reason}",
                hint="do they belong together, and is ssl.key.password right?",
            ) from None


def _pem(source: PemSource, name: str) -> str:
    if not isinstance(source, SecretFile):
        text = source.reveal()
    else:
        try:
            text = Path(source.path).read_bytes().decode(errors="replace")
        except OSError as error:
            raise ConfigError(
                f"cannot read {source.path}: {error.strerror}", hint="name a PEM file that you may read"
            ) from error
    if _PEM_MARK not in text:
        raise ConfigError(f"{_origin(source)} ({name}) is not PEM", hint=_NOT_PEM_HINT)
    return text


@contextmanager
def _as_path(source: PemSource) -> Iterator[str]:
    """Python loads keys only from files: a text gets one for the moment, in memory where the system has such."""
    if isinstance(source, SecretFile):
        yield source.path
    elif hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-key")
        with os.fdopen(descriptor, "wb") as file:
            file.write(source.reveal().encode())
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable by this user only
            file.write(source.reveal().encode())
            file.flush()
            yield file.name


def _origin(source: PemSource) -> str:
    return source.path if isinstance(source, SecretFile | CertificateStore) else "the PEM text"


def _meaning(error: ssl.SSLError, peer: Address, *, has_certificate: bool) -> ClientError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error, peer)
    reason = error.reason or str(error)
    if _CERTIFICATE_REQUIRED.search(reason) or (not has_certificate and _ALERT_OF_CERTIFICATE.search(reason)):
        return TlsFailed(f"{peer} demands a client certificate", hint=_NO_CERTIFICATE_HINT)
    if _ALERT_OF_CERTIFICATE.search(reason):
        return TlsFailed(f"{peer} refused the client's certificate: {reason}", hint=_BAD_CERTIFICATE_HINT)
    if "ALERT" in reason:
        return TlsFailed(
            f"{peer} ended the TLS handshake: {reason}",
            hint="the broker's log says why; do both sides share a version (TLS 1.2, 1.3) and a cipher, and does the"
            " listener demand a client certificate?",
        )
    if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
        return ConnectionLost(f"{peer} closed the connection")
    return ConnectionLost(f"the TLS connection to {peer} broke: {reason}")


def _distrust(error: ssl.SSLCertVerificationError, peer: Address) -> TlsFailed:
    code = error.verify_code
    if code in _OTHER_HOST:
        hint = (
            f"the certificate is not for {peer.host}: connect by a name that it holds, or have the broker advertise"
            " one (advertised.listeners)"
        )
    elif code == _EXPIRED:
        hint = "the broker's certificate has expired: renew it; is this machine's clock right?"
    elif code == _NOT_YET_VALID:
        hint = "the broker's certificate is not valid yet: is this machine's clock right?"
    elif code in _FOREIGN:
        hint = "the certificate is signed by an unknown authority: set ssl.ca.location to the CA of the broker"
    else:
        hint = "the broker's certificate is not acceptable: see the reason, and have it renewed"
    return TlsFailed(f"the certificate of {peer} is not trusted: {error.verify_message.rstrip('.')}", hint=hint)

"""The security of a client's connections, as one value.  It pickles, and no text form of it shows a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.security.mechanism import SaslMechanism
from ottla.security.protocol import SecurityProtocol
from ottla.security.secret import Secret

_SECRET_FILE_BYTES_MAX: Final = 1 * MIB


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A secret in a file, read at each use: a replaced file counts from the next connection on."""

    path: str

    def reveal(self) -> str:
        """Without the line end that editors add.  Raises ConfigError."""
        # Imported late: a client without security needs neither.
        from pathlib import Path

        from ottla.runtime.text_file import read_text_file

        text = read_text_file(Path(self.path), _SECRET_FILE_BYTES_MAX, "name a file with one secret")
        return text.rstrip("\r\n")


SecretText: TypeAlias = Secret | SecretFile


class PemSource(Protocol):
    """A `SecretText`, or a `CertificateStore`; equal ones have equal settings, and are hashable."""

    def reveal(self) -> str: ...


# Returns a token for each login; it may keep one while that is valid.  Pickled with the settings.
TokenSource: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Certificates and keys are PEM, or in stores of Java.

    ca                                       who may sign the brokers' certificates; None: the system's authorities
    certificate, key                         the client's own, for brokers that demand one; the key may be in the
                                             certificate's text
    key_password                             of an encrypted key
    ssl_verify_hostname_unsafely_disabled    a certificate of any host that `ca` has signed is accepted, so each holder
                                             of one can impersonate a broker
    """

    ca: PemSource | None = None
    certificate: PemSource | None = None
    key: PemSource | None = None
    key_password: SecretText | None = None
    ssl_verify_hostname_unsafely_disabled: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigError("a client's key was given without its certificate", hint="set ssl.certificate.location")

    @property
    def names_anything(self) -> bool:
        return self != TlsSettings(ssl_verify_hostname_unsafely_disabled=self.ssl_verify_hostname_unsafely_disabled)


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: SaslMechanism
    username: str
    password: SecretText

    def __post_init__(self) -> None:
        if self.mechanism is SaslMechanism.OAUTHBEARER:
            raise ConfigError("OAUTHBEARER logs in with a token, not with a password")
        if not self.username or "\0" in self.username:
            raise ConfigError(f"{self.mechanism} needs a user name", hint="set sasl.username")
        if isinstance(self.password, Secret) and (not self.password or "\0" in self.password.reveal()):
            raise ConfigError(f"{self.mechanism} needs a password", hint="set sasl.password or sasl.password.file")

    def __str__(self) -> str:
        return f"user {self.username} with {self.mechanism}"


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """OAUTHBEARER.  `extensions` are sent with each token (KIP-342)."""

    source: TokenSource
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.source):
            raise ConfigError(f"{type(self.source).__name__} is no source of tokens", hint="give a callable")
        from ottla.security.sasl_messages import extensions_problem

        problem = extensions_problem(self.extensions)
        if problem is not None:
            raise ConfigError(problem)

    @property
    def mechanism(self) -> SaslMechanism:
        return SaslMechanism.OAUTHBEARER

    def __str__(self) -> str:
        return "a token with OAUTHBEARER"


Login: TypeAlias = PasswordLogin | TokenLogin


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """Raises ConfigError for settings that contradict each other.

    Callers usually construct it from names, as librdkafka and Kafka have them: `names.client_security`.
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings = field(default_factory=TlsSettings)
    login: Login | None = None

    def __post_init__(self) -> None:
        if self.protocol.uses_sasl and self.login is None:
            raise ConfigError(
                f"security.protocol is {self.protocol}, without a login",
                hint="set sasl.mechanism, and sasl.username with sasl.password, or a source of tokens",
            )
        if self.login is not None and not self.protocol.uses_sasl:
            raise ConfigError(
                f"a SASL login was given, and security.protocol is {self.protocol}",
                hint="set security.protocol to SASL_SSL, or leave out the sasl.* settings",
            )
        if self.tls.names_anything and not self.protocol.uses_tls:
            raise ConfigError(
                f"certificates were given, and security.protocol is {self.protocol}",
                hint="set security.protocol to SSL or SASL_SSL, or leave out the ssl.* settings",
            )


PLAINTEXT: Final = ClientSecurity()

"""Security settings by their names in librdkafka and in Kafka's `client.properties`, and from environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.client.wire.security.certificate_store import CertificateStore
from ottla.client.wire.security.settings import (
    ClientSecurity,
    Login,
    PasswordLogin,
    PemSource,
    SecretFile,
    SecretText,
    TlsSettings,
    TokenLogin,
    TokenSource,
)
from ottla.client.wire.security.tokens import AwsMskToken, ClientCredentials
from ottla.model.errors import ConfigError
from ottla.model.limits import MIB
from ottla.model.nearest import nearest_name
from ottla.model.properties import parse_properties
from ottla.runtime.text_file import read_text_file
from ottla.security.jaas import parse_jaas
from ottla.security.mechanism import SaslMechanism
from ottla.security.protocol import SecurityProtocol
from ottla.security.secret import Secret

_FILE_BYTES_MAX: Final = 1 * MIB
_ENVIRONMENT_PREFIX: Final = "OTTLA_"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"

# Each name, and what it is called here.
_ALIASES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_KNOWN: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.password.file",
        "sasl.jaas.config",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.secret.file",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "https.ca.location",
        "https.ca.pem",
        "aws.region",
        "aws.profile",
        "aws.role.arn",
        "aws.role.session.name",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.key.password.file",
        "ssl.endpoint.identification.algorithm",
        "ssl.verify.hostname.unsafely.disabled",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "enable.ssl.certificate.verification",
    }
)
# They choose Java classes, or times of Java's logins, that have no counterpart here; none of them weakens anything.
_WITHOUT_MEANING: Final = re.compile(
    r"sasl\.login\..*|sasl\.client\.callback\.handler\.class|sasl\.kerberos\..*|sasl\.oauthbearer\.(?:clock|expected"
    r"|jwks)\..*|ssl\.(?:provider|keymanager\.algorithm|trustmanager\.algorithm|secure\.random\.implementation)"
    r"|security\.providers"
)
_OF_SECURITY: Final = re.compile(r"(?:security|sasl|ssl|https|aws)\.|enable\.ssl\.|enable\.sasl\.")
_MAY_BE_BESIDE: Final = frozenset({"bootstrap.servers", "client.id"})
# Names of which one suffices: a property replaces the variables of its row.
_ONE_MATTER: Final = (
    {"sasl.password", "sasl.password.file", "sasl.jaas.config"},
    {"sasl.username", "sasl.jaas.config"},
    {"sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.secret.file", "sasl.jaas.config"},
    {"https.ca.location", "https.ca.pem"},
    {"ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.password"},
    {"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl.keystore.password"},
    {"ssl.key.location", "ssl.key.pem", "ssl.keystore.location"},
    {"ssl.key.password", "ssl.key.password.file"},
)
# Settings of brokers have the same variables: where no protocol is named, they are of a broker on this machine.
_OF_BROKERS_TOO: Final = frozenset(
    {
        "sasl.jaas.config",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_TLS_VERSIONS: Final = frozenset({"TLSv1.2", "TLSv1.3", "TLS"})
_TRUE: Final = frozenset({"true", "1", "yes"})
_FALSE: Final = frozenset({"false", "0", "no"})
_MODULES: Final = {
    "PlainLoginModule": SaslMechanism.PLAIN,
    "ScramLoginModule": None,  # of the mechanism that sasl.mechanism names
    "OAuthBearerLoginModule": SaslMechanism.OAUTHBEARER,
    "IAMLoginModule": SaslMechanism.OAUTHBEARER,
}
# Options of a login module, and the names that they have as settings.
_JAAS_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
    "IAMLoginModule": {
        "awsProfileName": "aws.profile",
        "awsRoleArn": "aws.role.arn",
        "awsRoleSessionName": "aws.role.session.name",
        "awsStsRegion": "aws.region",
    },
}


def client_security(
    given: ClientSecurity | Mapping[str, object] | None, *, token_source: TokenSource | None = None
) -> ClientSecurity:
    """From a mapping of names, in their spelling with dots or with underscores; None: no security.

    `token_source` returns the token of each login by OAUTHBEARER.  Raises ConfigError for an unknown name, and for
    settings that contradict each other.
    """
    if isinstance(given, ClientSecurity):
        return given
    names = {name.replace("_", "."): value for name, value in (given or {}).items()}
    _check_known(names)
    return _Parser({name: _text(name, value) for name, value in names.items()}, token_source).parsed()


def security_of_properties(
    properties: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> ClientSecurity:
    """From a `client.properties`.  As in Kafka's tools, settings of other matters are ignored; an unknown one of
    security is refused, because a connection without it may be less secure than it seems.

    Variables of `environment`, in librdkafka's names, count where no property does; beside a property that demands
    PLAINTEXT none does.
    """
    own = {name: text for name, text in properties.items() if _OF_SECURITY.match(name)}
    _check_known(own)
    own = _unaliased(own)
    replaced = {other for name in own for matter in _ONE_MATTER if name in matter for other in matter}
    is_plain = own.get("security.protocol", "").strip().upper() == SecurityProtocol.PLAINTEXT
    variables = _of_environment({} if is_plain else environment or {}, names_protocol="security.protocol" in own)
    found = {name: text for name, text in variables.items() if name not in replaced}
    return _Parser(found | own, None).parsed()


def read_client_properties(path: Path) -> dict[str, str]:
    """The last value of each name, as in Java.  Raises ConfigError."""
    content = read_text_file(path, _FILE_BYTES_MAX, "is it a client.properties file?")
    try:
        return {name: text for name, text, _ in parse_properties(content)}
    except ConfigError as error:
        raise ConfigError(f"{path} {error}", hint=error.hint) from None


def environment_names() -> list[str]:
    """The variables that `security_of_properties` reads."""
    return [_variable(name) for name in sorted(_KNOWN)]


def _variable(name: str) -> str:
    return _ENVIRONMENT_PREFIX + name.replace(".", "_").upper()


def _of_environment(environment: Mapping[str, str], *, names_protocol: bool) -> dict[str, str]:
    found = {name: environment[_variable(name)] for name in _KNOWN if environment.get(_variable(name))}
    if names_protocol or "security.protocol" in found:
        return found
    return {name: text for name, text in found.items() if name not in _OF_BROKERS_TOO}


def _check_known(names: Iterable[str]) -> None:
    for name in names:
        if name in _KNOWN or name in _ALIASES or name in _MAY_BE_BESIDE or _WITHOUT_MEANING.fullmatch(name):
            continue
        nearest = nearest_name(name, _KNOWN)
        hint = f"did you mean {nearest}?" if nearest is not None else "docs/security.md lists the settings of clients"
        raise ConfigError(f"{name} is not a security setting that Ottla knows", hint=hint)


def _text(name: str, value: object) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return str(value)
    raise ConfigError(f"{name} is a text, not {type(value).__name__}")


def _unaliased(names: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in names.items():
        known = _ALIASES.get(name, name)
        if found.get(known, text) != text:
            raise ConfigError(f"{name} is given twice, once as {known}", hint="they are one setting: give one of them")
        found[known] = text
    return found


class _Parser:
    def __init__(self, names: Mapping[str, str], token_source: TokenSource | None) -> None:
        self._names = {name: text for name, text in _unaliased(names).items() if text.strip()}
        self._identification = _unaliased(names).get("ssl.endpoint.identification.algorithm")
        self._token_source = token_source
        self._module = ""
        self._extensions: dict[str, str] = {}

    def parsed(self) -> ClientSecurity:
        self._check_values()
        self._add_jaas()
        protocol = SecurityProtocol.parse(self._names.get("security.protocol", SecurityProtocol.PLAINTEXT))
        return ClientSecurity(protocol, self._tls(), self._login(protocol))

    def _check_values(self) -> None:
        for store in ("ssl.truststore.type", "ssl.keystore.type"):
            kind = self._names.get(store, _STORE_TYPES[0])
            if kind.upper() not in _STORE_TYPES:
                raise ConfigError(f"{store} {kind} is not supported", hint=f"supported are {', '.join(_STORE_TYPES)}")
        for name in ("ssl.enabled.protocols", "ssl.protocol"):
            versions = {version.strip() for version in self._names.get(name, "TLSv1.3").split(",")}
            if not versions & _TLS_VERSIONS:
                raise ConfigError(
                    f"{name} is {self._names[name]}, which is not secure any more", hint="TLSv1.2 and TLSv1.3 are used"
                )
        if not self._truth("enable.ssl.certificate.verification", default=True):
            raise ConfigError(
                "certificates are always verified, and enable.ssl.certificate.verification is false",
                hint="set ssl.ca.location to the CA of the brokers; a self-signed certificate is its own",
            )
        method = self._names.get("sasl.oauthbearer.method", "oidc")
        if method.lower() not in ("oidc", "default"):
            raise ConfigError(f"sasl.oauthbearer.method {method} is not supported", hint="set it to oidc")

    def _add_jaas(self) -> None:
        text = self._names.get("sasl.jaas.config")
        if text is None:
            return
        module, options = parse_jaas(text)
        if module not in _MODULES:
            raise ConfigError(
                f"the login module {module} of sasl.jaas.config is not supported",
                hint=f"supported are {', '.join(_MODULES)}",
            )
        self._module = module
        known = _JAAS_OPTIONS[module]
        for option, value in options.items():
            if option.startswith("extension_") and module == "OAuthBearerLoginModule":
                self._extensions[option.removeprefix("extension_")] = value
            elif option in known:
                if self._names.get(known[option], value) != value:
                    raise ConfigError(
                        f"sasl.jaas.config and {known[option]} contradict each other", hint="give one of them"
                    )
                self._names[known[option]] = value
            else:
                raise ConfigError(
                    f"the option {option} of {module} is not supported",
                    hint=f"supported are {', '.join(known) or 'none'}",
                )

    def _tls(self) -> TlsSettings:
        return TlsSettings(
            ca=self._certificates("ssl.ca.pem", "ssl.ca.location", "ssl.truststore"),
            certificate=self._certificates("ssl.certificate.pem", "ssl.certificate.location", "ssl.keystore"),
            key=self._secret("ssl.key.pem", "ssl.key.location"),
            key_password=self._secret("ssl.key.password", "ssl.key.password.file"),
            ssl_verify_hostname_unsafely_disabled=not self._verifies_hostname(),
        )

    def _certificates(self, text_name: str, file_name: str, store: str) -> PemSource | None:
        path, found = self._names.get(f"{store}.location"), self._secret(text_name, file_name)
        if path is None:
            return found
        if found is not None:
            raise ConfigError(
                f"{store}.location is given, and {text_name} or {file_name}",
                hint="they are one setting: give one of them",
            )
        password = self._names.get(f"{store}.password")
        return CertificateStore(path, None if password is None else Secret(password))

    def _verifies_hostname(self) -> bool:
        if self._truth("ssl.verify.hostname.unsafely.disabled", default=False):
            return False
        if self._identification is None or self._identification.strip().lower() == "https":
            return True
        if self._identification.strip().lower() in ("none", ""):  # the empty text is Kafka's own way
            return False
        raise ConfigError(
            f"ssl.endpoint.identification.algorithm is {self._identification!r}", hint="it is https, or none"
        )

    def _login(self, protocol: SecurityProtocol) -> Login | None:
        mechanism = self._names.get("sasl.mechanism", "").strip().upper()
        if self._token_source is not None:
            return TokenLogin(self._token_source, self._all_extensions())
        if self._module == "IAMLoginModule" or mechanism == AWS_MSK_IAM:
            return self._aws(mechanism, protocol)
        if not mechanism:
            if not self._names_login():
                return None
            named = _MODULES.get(self._module)
            if named is None:
                # Kafka's default, GSSAPI, is none of Ottla's.
                raise ConfigError("a SASL login was given without sasl.mechanism", hint="set it, as in SCRAM-SHA-256")
            found = named
        else:
            found = SaslMechanism.parse(mechanism)
        self._check_module(found)
        return self._token_login() if found is SaslMechanism.OAUTHBEARER else self._password_login(found)

    def _names_login(self) -> bool:
        return any(
            name.startswith(("sasl.username", "sasl.password", "sasl.jaas", "sasl.oauthbearer.client"))
            for name in self._names
        )

    def _check_module(self, mechanism: SaslMechanism) -> None:
        if not self._module:
            return
        expected = _MODULES[self._module]
        if not (mechanism.is_scram if expected is None else mechanism is expected):
            raise ConfigError(f"sasl.mechanism is {mechanism}, and sasl.jaas.config names {self._module}")

    def _password_login(self, mechanism: SaslMechanism) -> PasswordLogin:
        password = self._secret("sasl.password", "sasl.password.file")
        username = self._names.get("sasl.username", "")
        if password is None or not username:
            raise ConfigError(
                f"{mechanism} needs a user name and a password",
                hint="set sasl.username, and sasl.password or sasl.password.file",
            )
        return PasswordLogin(mechanism, username, password)

    def _token_login(self) -> TokenLogin:
        url = self._names.get("sasl.oauthbearer.token.endpoint.url")
        secret = self._secret("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.secret.file")
        client_id = self._names.get("sasl.oauthbearer.client.id", "")
        if url is None or secret is None or not client_id:
            raise ConfigError(
                "OAUTHBEARER needs a source of tokens",
                hint="set sasl.oauthbearer.token.endpoint.url, .client.id and .client.secret, or pass a token_source",
            )
        ca = self._secret("https.ca.pem", "https.ca.location")
        source = ClientCredentials(url, client_id, secret, self._names.get("sasl.oauthbearer.scope", ""), ca)
        return TokenLogin(source, self._all_extensions())

    def _all_extensions(self) -> Mapping[str, str]:
        """librdkafka's text `name=value,name=value`, and the options of the login module."""
        pairs = [part.partition("=") for part in self._names.get("sasl.oauthbearer.extensions", "").split(",") if part]
        return self._extensions | {name.strip(): value.strip() for name, _, value in pairs}

    def _aws(self, mechanism: str, protocol: SecurityProtocol) -> TokenLogin:
        if mechanism not in ("", AWS_MSK_IAM):
            raise ConfigError(f"sasl.mechanism is {mechanism}, and sasl.jaas.config names IAMLoginModule")
        if protocol is not SecurityProtocol.SASL_SSL:
            raise ConfigError("AWS_MSK_IAM is offered with TLS only", hint="set security.protocol to SASL_SSL")
        region, profile, role_arn = (
            self._names.get(name, "") for name in ("aws.region", "aws.profile", "aws.role.arn")
        )
        session = self._names.get("aws.role.session.name", AwsMskToken().role_session_name)
        return TokenLogin(AwsMskToken(region, profile, role_arn, session))

    def _secret(self, text_name: str, file_name: str) -> SecretText | None:
        text, path = self._names.get(text_name), self._names.get(file_name)
        if text is not None and path is not None:
            raise ConfigError(f"both {text_name} and {file_name} are given", hint="give one of them")
        if text is not None:
            return Secret(text)
        return None if path is None else SecretFile(path)

    def _truth(self, name: str, *, default: bool) -> bool:
        text = self._names.get(name, "").strip().lower()
        if text and text not in _TRUE | _FALSE:
            raise ConfigError(f"{name} is true or false, not {text!r}")
        return text in _TRUE if text else default

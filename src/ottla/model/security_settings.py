"""The settings of TLS and of logins: Kafka's names.  `listener.name.<name in lower case>.` before one limits it to a
listener."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.model.errors import ConfigError
from ottla.model.http_settings import HTTP_SETTINGS
from ottla.model.limits import INT32_MAX, KIB, MINUTE_MS
from ottla.model.setting import AnySetting, flag, int32, int64, optional_password, optional_text, word, words

PEM: Final = "PEM"
CLIENT_AUTH_NONE: Final = "none"
CLIENT_AUTH_REQUESTED: Final = "requested"
CLIENT_AUTH_REQUIRED: Final = "required"

SSL_KEYSTORE_TYPE: Final = word(
    "ssl.keystore.type", PEM, "Only PEM is offered; the error for JKS and PKCS12 has the command that converts them."
)
SSL_KEYSTORE_LOCATION: Final = optional_text(
    "ssl.keystore.location", "A PEM file with the private key, the certificate and those of intermediate CAs."
)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final = optional_text(
    "ssl.keystore.certificate.chain", "Instead of `ssl.keystore.location`: the certificates, as PEM text or a file."
)
SSL_KEYSTORE_KEY: Final = optional_password(
    "ssl.keystore.key", "With `ssl.keystore.certificate.chain`: the private key, as PEM text or a file."
)
SSL_KEY_PASSWORD: Final = optional_password("ssl.key.password", "The password of the private key.")
SSL_TRUSTSTORE_TYPE: Final = word("ssl.truststore.type", PEM, "Only PEM is offered.")
SSL_TRUSTSTORE_LOCATION: Final = optional_text(
    "ssl.truststore.location", "A PEM file with the CAs whose client certificates are accepted, and no others."
)
SSL_TRUSTSTORE_CERTIFICATES: Final = optional_text(
    "ssl.truststore.certificates", "Instead of `ssl.truststore.location`: the certificates, as PEM text or a file."
)
SSL_CLIENT_AUTH: Final = word(
    "ssl.client.auth",
    CLIENT_AUTH_NONE,
    "Whether clients must have a certificate; `requested`: a client without one is User:ANONYMOUS.",
    choices=(CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED),
)
SSL_ENABLED_PROTOCOLS: Final = words(
    "ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), "The versions of TLS.", choices=("TLSv1.2", "TLSv1.3")
)
SSL_PRINCIPAL_MAPPING_RULES: Final = word(
    "ssl.principal.mapping.rules",
    "DEFAULT",
    "How a client certificate's distinguished name becomes a principal: `RULE:regex/replacement/[L|U]`, with commas "
    "between; the first that matches the whole name applies.  `DEFAULT` is the name itself.",
)
SASL_ENABLED_MECHANISMS: Final = words(
    "sasl.enabled.mechanisms",
    ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "The mechanisms by which clients log in: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER.  Kafka's default, "
    "GSSAPI, is not offered.",
)
SASL_PLAIN_USERS_FILE: Final = optional_text(
    "sasl.plain.users.file",
    "The users of PLAIN: a file with a line `name=password` for each, readable by its owner only.  It is read again "
    "when it changes.",
)
SASL_PLAIN_ALLOW_UNENCRYPTED: Final = flag(
    "sasl.plain.allow.unencrypted", False, "PLAIN also on SASL_PLAINTEXT: passwords are readable on the network."
)
PLAIN_SASL_JAAS_CONFIG: Final = optional_password(
    "plain.sasl.jaas.config",
    'As in Kafka: the options `user_<name>="..."` of PlainLoginModule are users of PLAIN, `username` and `password` '
    "those by which this broker logs in to others.",
)
SCRAM_SHA_256_SASL_JAAS_CONFIG: Final = optional_password(
    "scram-sha-256.sasl.jaas.config", "As in Kafka: `username` and `password` by which this broker logs in to others."
)
SCRAM_SHA_512_SASL_JAAS_CONFIG: Final = optional_password("scram-sha-512.sasl.jaas.config", "The same.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final = optional_text(
    "sasl.oauthbearer.jwks.endpoint.url",
    "The keys of the issuer of OAUTHBEARER's tokens, a JSON web key set: `https://...` or `file:///...`.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS: Final = int64(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    60 * MINUTE_MS,
    "How often these keys are read; also soon after a token with an unknown one.",
    minimum=1_000,
)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final = optional_text(
    "sasl.oauthbearer.expected.issuer", "The `iss` that tokens must have.  OAUTHBEARER needs it."
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = words(
    "sasl.oauthbearer.expected.audience", (), "The `aud` of which tokens must have one.  OAUTHBEARER needs it."
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = word(
    "sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that names the user."
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = int32(
    "sasl.oauthbearer.clock.skew.seconds", 30, "How far the clocks of issuer and broker may differ.", minimum=0
)
SASL_SERVER_MAX_RECEIVE_SIZE: Final = int32(
    "sasl.server.max.receive.size",
    64 * KIB,
    "The largest request before the login.  Kafka's default is 524288.",
    minimum=1 * KIB,
    maximum=INT32_MAX,
)
CONNECTIONS_MAX_REAUTH_MS: Final = int64(
    "connections.max.reauth.ms",
    0,
    "A login is valid for this long; a client that has not logged in again is disconnected at its next request.  "
    "0: as long as the connection.",
    minimum=0,
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: Final = int32(
    "connection.failed.authentication.delay.ms", 100, "The response to a failed login waits for this long.", minimum=0
)
INTER_BROKER_LISTENER_NAME: Final = optional_text(
    "inter.broker.listener.name",
    "The listener by which the brokers of a cluster reach each other.  Only brokers may use it: where it is set, "
    "replicas fetch from no other listener.",
)
INTER_BROKER_FORMER_LISTENER_NAME: Final = optional_text(
    "inter.broker.former.listener.name",
    "While the brokers change to another listener one after the other: those that still use this one may fetch from "
    "it.  Remove it when all have changed.",
)
SECURITY_INTER_BROKER_PROTOCOL: Final = optional_text(
    "security.inter.broker.protocol",
    "Instead of `inter.broker.listener.name`: the first listener with this protocol.",
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL: Final = word(
    "sasl.mechanism.inter.broker.protocol",
    "SCRAM-SHA-512",
    "The mechanism by which brokers log in to each other.",
    choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
)
SASL_INTER_BROKER_USERNAME: Final = optional_text(
    "sasl.inter.broker.username", "The user as which this broker logs in to others."
)
SASL_INTER_BROKER_PASSWORD: Final = optional_password(
    "sasl.inter.broker.password", "Its password.  Better in a file: `sasl.inter.broker.password.file`."
)
SASL_INTER_BROKER_PASSWORD_FILE: Final = optional_text(
    "sasl.inter.broker.password.file", "A file with that password, readable by its owner only."
)

TLS_SETTINGS: Final[tuple[AnySetting, ...]] = (
    SSL_KEYSTORE_TYPE,
    SSL_KEYSTORE_LOCATION,
    SSL_KEYSTORE_CERTIFICATE_CHAIN,
    SSL_KEYSTORE_KEY,
    SSL_KEY_PASSWORD,
    SSL_TRUSTSTORE_TYPE,
    SSL_TRUSTSTORE_LOCATION,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_CLIENT_AUTH,
    SSL_ENABLED_PROTOCOLS,
    SSL_PRINCIPAL_MAPPING_RULES,
)
LOGIN_SETTINGS: Final[tuple[AnySetting, ...]] = (
    SASL_ENABLED_MECHANISMS,
    SASL_PLAIN_USERS_FILE,
    SASL_PLAIN_ALLOW_UNENCRYPTED,
    PLAIN_SASL_JAAS_CONFIG,
    SCRAM_SHA_256_SASL_JAAS_CONFIG,
    SCRAM_SHA_512_SASL_JAAS_CONFIG,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    CONNECTIONS_MAX_REAUTH_MS,
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
)
INTER_BROKER_SETTINGS: Final[tuple[AnySetting, ...]] = (
    INTER_BROKER_LISTENER_NAME,
    INTER_BROKER_FORMER_LISTENER_NAME,
    SECURITY_INTER_BROKER_PROTOCOL,
    SASL_MECHANISM_INTER_BROKER_PROTOCOL,
    SASL_INTER_BROKER_USERNAME,
    SASL_INTER_BROKER_PASSWORD,
    SASL_INTER_BROKER_PASSWORD_FILE,
)
# Those that a listener may have for itself.
LISTENER_SETTINGS: Final[Mapping[str, AnySetting]] = {
    setting.name: setting for setting in (*TLS_SETTINGS, *LOGIN_SETTINGS, *HTTP_SETTINGS)
}


_CLASSES: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)

AUTHORIZER_CLASS_NAME: Final = word(
    "authorizer.class.name",
    "",
    "Any of Kafka's own authorizers turns Ottla's on, which decides alike: from then on a client may do only what an "
    "ACL allows.  Empty: every client may do everything.  The same for all brokers of a cluster.",
    choices=("", *_CLASSES),
)
SUPER_USERS: Final = word(
    "super.users",
    "",
    "The principals that may do everything, `User:NAME` each, with semicolons between.  Those of the brokers must be "
    "among them, or have the right CLUSTER_ACTION.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = flag(
    "allow.everyone.if.no.acl.found", False, "Every client may do everything with a resource that no ACL covers."
)
SECURITY_LOG_FILE: Final = optional_text(
    "security.log.file",
    "A file for a JSON line about each refusal and each change by an administrator, readable by its owner only.  The "
    "broker's log has them as well.  A file that is moved away is created again.",
)
AUTHORIZER_SETTINGS: Final[tuple[AnySetting, ...]] = (
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    SECURITY_LOG_FILE,
)


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`.  Raises `ConfigError` for one that is not TYPE:NAME."""
    principals = frozenset(part.strip() for part in text.split(";") if part.strip())
    for principal in sorted(principals):
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise ConfigError(
                f"super.users: {principal!r} is not a principal",
                hint="write TYPE:NAME with semicolons between, such as User:admin;User:broker",
            )
    return principals

"""Security settings by the names of librdkafka and Kafka, and from the environment."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.certificate_store import CertificateStore
from ottla.client.wire.security.setting_names import (
    client_security,
    environment_names,
    read_client_properties,
    security_of_properties,
)
from ottla.client.wire.security.settings import (
    PLAINTEXT,
    ClientSecurity,
    PasswordLogin,
    SecretFile,
    TlsSettings,
    TokenLogin,
)
from ottla.client.wire.security.tokens import AwsMskToken, ClientCredentials
from ottla.model.errors import ConfigError
from ottla.security.mechanism import SaslMechanism
from ottla.security.protocol import SecurityProtocol
from ottla.security.secret import Secret

PASSWORD = "geheim-17"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": PASSWORD,
}
SCRAM_LOGIN = PasswordLogin(SaslMechanism.SCRAM_SHA_256, "alice", Secret(PASSWORD))
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{PASSWORD}";'
TOKENS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": PASSWORD,
}


def give_token() -> str:
    return "abc"


def test_no_settings_are_plaintext() -> None:
    assert client_security(None) == client_security({}) == PLAINTEXT
    assert ClientOptions().security is PLAINTEXT


def test_settings_are_named_as_in_librdkafka() -> None:
    found = client_security({**SCRAM, "ssl.ca.location": "/ca.pem", "bootstrap.servers": "a:1"})
    tls = TlsSettings(ca=SecretFile("/ca.pem"))
    assert found == ClientSecurity(SecurityProtocol.SASL_SSL, tls, SCRAM_LOGIN)


def test_names_may_have_underscores_as_in_python() -> None:
    assert client_security({name.replace(".", "_"): text for name, text in SCRAM.items()}) == client_security(SCRAM)


def test_a_value_that_is_complete_is_kept() -> None:
    found = client_security(SCRAM)
    assert client_security(found) is found


def test_the_options_of_kafkas_clients_mean_the_same() -> None:
    """As the official connector of Spark, and Kafka's tools, have them."""
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
        "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
        "ssl.key.password": "k",
        "sasl.login.refresh.window.factor": "0.8",
    }
    found = client_security(kafka)
    assert found.login == SCRAM_LOGIN
    assert found.tls == TlsSettings(
        ca=CertificateStore("/ca.pem"),
        certificate=Secret("-----BEGIN CERTIFICATE-----"),
        key=Secret("-----BEGIN PRIVATE KEY-----"),
        key_password=Secret("k"),
    )


@pytest.mark.parametrize(
    ("module", "mechanism"),
    [
        ("org.apache.kafka.common.security.plain.PlainLoginModule", "PLAIN"),
        ("kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule", "PLAIN"),
        ("org.apache.kafka.common.security.scram.ScramLoginModule", "SCRAM-SHA-512"),
    ],
)
def test_a_login_module_gives_the_user_and_the_password(module: str, mechanism: str) -> None:
    jaas = f"{module} required\n  username='al\\'ice'\n  password = \"a=b;c\\\"d\" ;"
    found = client_security(
        {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    ).login
    assert found == PasswordLogin(SaslMechanism(mechanism), "al'ice", Secret('a=b;c"d'))


@pytest.mark.parametrize(
    "jaas",
    [
        "",
        "ScramLoginModule required",
        JAAS.removesuffix(";"),
        JAAS + JAAS,
        JAAS.replace("required", "always"),
        JAAS.replace('"alice"', '"alice'),
        JAAS.replace("username=", "username"),
        JAAS.replace("username", "password"),
        JAAS.replace("ScramLoginModule", "Krb5LoginModule"),
        JAAS.replace("ScramLoginModule", "PlainLoginModule"),
        JAAS.replace(";", " tokenauth=true;"),
    ],
)
def test_a_malformed_or_foreign_login_module_is_refused_without_its_password(jaas: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"security.protocol": "TLS"}, "'TLS' is not a security protocol"),
        ({"sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported"),
        ({"sasl.mechanism": ""}, "without sasl.mechanism"),
        ({"sasl.username": ""}, "needs a user name"),
        ({"sasl.password": ""}, "needs a user name and a password"),
        ({"security.protocol": "SSL"}, "a SASL login was given, and security.protocol is SSL"),
        ({"security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": "x"}, "certificates were given"),
        ({"sasl.password.file": "/x"}, "both sasl.password and sasl.password.file"),
        ({"sasl.usrname": "x"}, "sasl.usrname is not a security setting"),
        ({"acks": "all"}, "acks is not a security setting"),
        ({"ssl.truststore.type": "BKS"}, "BKS is not supported"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "not secure any more"),
        ({"enable.ssl.certificate.verification": "false"}, "always verified"),
        ({"ssl.endpoint.identification.algorithm": "maybe"}, "'maybe'"),
        ({"ssl.cipher.suites": "TLS_X"}, "ssl.cipher.suites is not a security setting"),
        ({"ssl.key.location": "/key.pem"}, "without its certificate"),
        ({"ssl.ca.location": "a", "ssl.truststore.location": "b"}, r"truststore\.location is given, and"),
        ({"ssl.ca.pem": "a", "ssl.truststore.certificates": "b"}, "given twice"),
        ({"sasl.jaas.config": JAAS.replace("alice", "bob")}, "contradict"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "needs a source of tokens"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_PLAINTEXT"}, "with TLS only"),
    ],
)
def test_what_contradicts_itself_is_refused_with_a_hint(changes: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        client_security({**SCRAM, **changes})
    assert refused.value.hint
    assert PASSWORD not in str(refused.value)


def test_a_protocol_with_sasl_needs_a_login() -> None:
    with pytest.raises(ConfigError, match="without a login"):
        client_security({"security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    "setting",
    [
        {"ssl.endpoint.identification.algorithm": "none"},
        {"ssl.endpoint.identification.algorithm": ""},
        {"ssl_verify_hostname_unsafely_disabled": True},
    ],
)
def test_host_names_are_verified_unless_that_is_disabled_by_name(setting: Mapping[str, object]) -> None:
    assert not client_security({"security.protocol": "SSL"}).tls.ssl_verify_hostname_unsafely_disabled
    https = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "https"}
    assert not client_security(https).tls.ssl_verify_hostname_unsafely_disabled
    assert client_security({"security.protocol": "SSL", **setting}).tls.ssl_verify_hostname_unsafely_disabled


def test_tokens_come_from_client_credentials() -> None:
    extensions = {"sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool"}
    expected = ClientCredentials("https://idp.example/token", "me", Secret(PASSWORD), "kafka")
    found = client_security({**TOKENS, **extensions, "sasl.oauthbearer.scope": "kafka"}).login
    assert found == TokenLogin(expected, {"logicalCluster": "lkc-1", "identityPoolId": "pool"})


def test_tokens_come_from_the_login_module_of_kafka() -> None:
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        f' clientId="me" clientSecret="{PASSWORD}" extension_logicalCluster="lkc-1";'
    )
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": jaas,
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
        "sasl.login.callback.handler.class": "org.apache.kafka.OAuthBearerLoginCallbackHandler",
    }
    expected = ClientCredentials("https://idp.example/token", "me", Secret(PASSWORD))
    assert client_security(kafka).login == TokenLogin(expected, {"logicalCluster": "lkc-1"})


def test_tokens_come_from_a_callable() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    assert client_security(given, token_source=give_token).login == TokenLogin(give_token)


def test_the_names_of_awss_library_choose_its_signer() -> None:
    aws = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="prod";',
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "aws.region": "eu-west-1",
    }
    assert client_security(aws).login == TokenLogin(AwsMskToken("eu-west-1", "prod"))


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example/token",
        f"http://me:{PASSWORD}@idp.example",
        f"ftp://me:{PASSWORD}@idp.example",
        f"https://me:{PASSWORD}@idp.example/",
        "idp",
    ],
)
def test_a_token_endpoint_that_would_leak_the_secret_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        client_security({**TOKENS, "sasl.oauthbearer.token.endpoint.url": url})
    assert refused.value.hint
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("names", [SCRAM, TOKENS, {**SCRAM, "ssl.ca.pem": PASSWORD, "ssl.key.password": PASSWORD}])
def test_settings_pickle_and_no_text_form_shows_a_secret(names: Mapping[str, str]) -> None:
    found = client_security(names)
    assert pickle.loads(pickle.dumps(found)) == found
    for text in (repr(found), str(found), f"{found}", repr(ClientOptions(security=found)), str(found.login)):
        assert PASSWORD not in text


def test_properties_of_other_matters_are_ignored_and_unknown_ones_of_security_are_not() -> None:
    properties = {**SCRAM, "acks": "all", "group.id": "x", "request.timeout.ms": "1"}
    assert security_of_properties(properties) == client_security(SCRAM)
    with pytest.raises(ConfigError, match=r"ssl\.cafile"):
        security_of_properties({**properties, "ssl.cafile": "x"})


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\nsecurity.protocol=PLAINTEXT\nsecurity.protocol=SASL_SSL\nsasl.mechanism: SCRAM-SHA-256\n"
        f"sasl.jaas.config={JAAS[:40]}\\\n  {JAAS[40:]}\n"
    )
    found = security_of_properties(read_client_properties(file))
    assert (found.protocol, found.login) == (SecurityProtocol.SASL_SSL, SCRAM_LOGIN)


def test_the_environment_counts_where_no_property_does() -> None:
    environment = {
        "OTTLA_SECURITY_PROTOCOL": "SASL_SSL",
        "OTTLA_SASL_MECHANISM": "SCRAM-SHA-512",
        "OTTLA_SASL_USERNAME": "alice",
        "OTTLA_SASL_PASSWORD_FILE": "/run/secrets/kafka",
        "OTTLA_SSL_CA_LOCATION": "/ca.pem",
        "OTTLA_SSL_KEY_LOCATION": "",
        "OTTLA_HOME": "/x",
    }
    login = PasswordLogin(SaslMechanism.SCRAM_SHA_512, "alice", SecretFile("/run/secrets/kafka"))
    tls = TlsSettings(ca=SecretFile("/ca.pem"))
    assert security_of_properties({}, environment) == ClientSecurity(SecurityProtocol.SASL_SSL, tls, login)
    found = security_of_properties(SCRAM, environment)
    assert (found.login, found.tls) == (SCRAM_LOGIN, tls)
    by_jaas = {"sasl.jaas.config": JAAS, "sasl.mechanism": "SCRAM-SHA-256"}
    assert security_of_properties(by_jaas, environment | {"OTTLA_SASL_USERNAME": "bob"}).login == SCRAM_LOGIN


def test_variables_of_a_broker_on_the_same_machine_do_not_count() -> None:
    broker = {"OTTLA_SSL_KEY_PASSWORD": "k", "OTTLA_SASL_JAAS_CONFIG": "x", "OTTLA_SSL_KEYSTORE_LOCATION": "/x"}
    assert security_of_properties({}, broker) == PLAINTEXT
    with pytest.raises(ConfigError):
        security_of_properties({}, broker | {"OTTLA_SSL_CA_LOCATION": "/ca.pem"})


def test_each_setting_has_its_variable() -> None:
    assert {"OTTLA_SASL_PASSWORD_FILE", "OTTLA_SSL_CA_LOCATION", "OTTLA_SASL_JAAS_CONFIG"} <= set(environment_names())


def test_a_secret_in_a_file_is_read_at_each_use_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "password"
    secret = SecretFile(str(file))
    with pytest.raises(ConfigError, match="cannot read"):
        secret.reveal()
    for text in ("one", "two "):
        file.write_text(text + "\n")
        assert secret.reveal() == text

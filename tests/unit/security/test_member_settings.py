"""The settings of a broker, as another one of its cluster gets them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

import pytest

from ottla.model.errors import ConfigError
from ottla.model.properties import parse_properties
from ottla.model.serve_options import serve_options
from ottla.model.settings import BrokerSettings
from ottla.security.certificate import Certificate
from ottla.security.issuing import issue, issue_certificate
from ottla.security.member_settings import MemberSettings, file_name, member_settings

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SECURED = """
node.id=1
broker.rack=a
log.dirs=/var/lib/ottla
listeners=PLAINTEXT://127.0.0.1:9092,INTERNAL://10.0.0.1:9094,SASL_SSL://0.0.0.0:9093
advertised.listeners=SASL_SSL://b1.example:9193
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL,SASL_SSL:SASL_SSL
inter.broker.listener.name=INTERNAL
sasl.inter.broker.username=broker
sasl.inter.broker.password.file=/etc/ottla/broker.password
ssl.keystore.location=/etc/ottla/broker.pem
ssl.key.password=of the first broker
listener.name.sasl_ssl.ssl.keystore.location=/etc/ottla/clients.pem
ssl.truststore.location=/etc/ottla/ca.pem
zookeeper.connect=zk1:2281/ottla
zookeeper.ssl.client.enable=true
zookeeper.ssl.truststore.location=/etc/ottla/ca.pem
zookeeper.ssl.keystore.location=/etc/ottla/broker.pem
zookeeper.digest.file=/etc/ottla/zookeeper.digest
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:broker
default.replication.factor=3
ssl.truststore.password=ignored here, and a secret all the same
"""


def member(text: str = SECURED, host: str = "b2.example") -> MemberSettings:
    return member_settings([(found.name, found.text) for found in parse_properties(text)], host)


def test_settings_of_the_cluster_are_kept() -> None:
    kept = member().settings
    assert kept["zookeeper.connect"] == "zk1:2281/ottla"
    assert kept["super.users"] == "User:admin;User:broker"
    assert kept["default.replication.factor"] == "3"


def test_id_certificates_and_secrets_of_the_first_broker_are_not() -> None:
    made = member()
    everything = "\n".join([*made.settings, *made.settings.values(), *made.files, *made.files.values()])
    for own in ("node.id", "broker.pem", "clients.pem", "key.password", "broker.password", "all the same"):
        assert own not in everything
    assert made.keystores == ("ssl.keystore.location", "zookeeper.ssl.keystore.location")
    assert made.left_out == ("broker.rack", "log.dirs")


def test_files_that_brokers_share_are_read() -> None:
    assert member().files == {
        "ssl.truststore.location": "/etc/ottla/ca.pem",
        "zookeeper.ssl.truststore.location": "/etc/ottla/ca.pem",
        "zookeeper.digest.file": "/etc/ottla/zookeeper.digest",
    }


def test_certificates_of_cas_may_be_named_by_their_other_setting() -> None:
    named = "listener.name.internal.ssl.truststore.certificates"
    made = member(SECURED + f"{named}=/etc/ottla/peers.pem\n")
    assert made.files["listener.name.internal.ssl.truststore.location"] == "/etc/ottla/peers.pem"
    made = member(SECURED + f"{named}=-----BEGIN CERTIFICATE-----\n")
    assert made.settings[named] == "-----BEGIN CERTIFICATE-----"


def test_broker_gets_a_user_for_itself_with_the_rights_of_a_broker() -> None:
    made = member()
    assert made.user == "broker-b2.example"
    assert made.principal == "User:broker-b2.example"
    assert made.settings["sasl.inter.broker.username"] == made.user


def test_without_an_authorizer_no_principal_needs_rights() -> None:
    assert member(SECURED.replace("authorizer.class.name=org", "#")).principal is None


def test_broker_keeps_the_common_user_of_plain() -> None:
    made = member(SECURED + "sasl.mechanism.inter.broker.protocol=PLAIN\n")
    assert made.user is None
    assert made.settings["sasl.inter.broker.username"] == "broker"
    assert made.files["sasl.inter.broker.password.file"] == "/etc/ottla/broker.password"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("", "User:CN=b2.example"),
        ("ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/\n", "User:b2.example"),
    ],
)
def test_certificate_is_the_identity_of_a_broker_without_a_login(rules: str, principal: str) -> None:
    text = SECURED.replace("INTERNAL:SASL_SSL", "INTERNAL:SSL") + f"ssl.client.auth=required\n{rules}"
    made = member(text)
    assert made.user is None
    assert made.principal == principal


@pytest.mark.parametrize("host", ["b2.example", "10.0.0.2", "fd00::2", f"{'long.' * 20}example"])
def test_principal_is_that_of_the_issued_certificate(host: str) -> None:
    issued = issue(["b1.example"], NOW)
    keystore = issue_certificate(issued.authority, issued.authority_key, [host], NOW)
    der = ssl.PEM_cert_to_DER_cert(keystore[keystore.index("-----BEGIN CERTIFICATE") :])
    text = SECURED.replace("INTERNAL:SASL_SSL", "INTERNAL:SSL") + "ssl.client.auth=required\n"
    assert member(text, host).principal == f"User:{Certificate.parse(der).subject}"


def test_listeners_of_other_machines_get_the_host() -> None:
    kept = member().settings
    assert kept["listeners"] == "PLAINTEXT://127.0.0.1:9092,INTERNAL://b2.example:9094,SASL_SSL://0.0.0.0:9093"
    assert kept["advertised.listeners"] == "INTERNAL://b2.example:9094,SASL_SSL://b2.example:9193"


def test_broker_can_start_with_the_settings() -> None:
    options = serve_options(BrokerSettings.of(member().settings))
    assert options.inter_broker_listener.host == "b2.example"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SECURED.replace("zookeeper.connect", "#"), "standalone broker"),
        (SECURED.replace("listener.name=INTERNAL", "listener.name=PLAINTEXT"), "without TLS or a proof"),
        (SECURED.replace("INTERNAL:SASL_SSL", "INTERNAL:SSL"), "without TLS or a proof"),
        (
            SECURED.replace("INTERNAL:SASL_SSL", "INTERNAL:SSL")
            + "ssl.client.auth=required\nssl.principal.mapping.rules=RULE:^CN=b1$/b1/\n",
            "no rule",
        ),
    ],
)
def test_brokers_that_are_not_secured_let_no_other_join(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        member(text)


def test_files_of_two_listeners_have_different_names() -> None:
    assert file_name("ssl.truststore.location") == "ca.pem"
    assert file_name("listener.name.internal.ssl.truststore.location") == "internal.ca.pem"

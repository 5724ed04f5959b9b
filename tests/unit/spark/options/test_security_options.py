"""The options of TLS and SASL: the official connector's names, and that nothing shows their secrets."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.client.wire.security.certificate_store import CertificateStore
from ottla.client.wire.security.settings import PLAINTEXT, PasswordLogin, SecretFile
from ottla.model.errors import ConfigError
from ottla.security.mechanism import SaslMechanism
from ottla.security.protocol import SecurityProtocol
from ottla.security.secret import Secret
from ottla.spark.errors import SparkOptionError
from ottla.spark.options.connection import Connection, connection_of, parse_connection
from ottla.spark.options.option_reader import OptionReader
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.source.batch_reader import task_partitions
from ottla.spark.source.data_source import OttlaDataSource
from ottla.spark.source.offset_ranges import OffsetRange

SECRET = "wa1tForTheTrain"
BASE = {"kafka.bootstrap.servers": "localhost:9092"}
TOPIC = {"subscribe": "clicks"}
SCRAM_JAAS = (
    "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="alice" password="{SECRET}";'
)
PLAIN_JAAS = SCRAM_JAAS.replace("scram.Scram", "plain.Plain")
SCRAM = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": SECRET,
}
ALICE = PasswordLogin(SaslMechanism.SCRAM_SHA_512, "alice", Secret(SECRET))


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTTLA_SECURITY_PROTOCOL", "OTTLA_SASL_MECHANISM", "OTTLA_SASL_USERNAME", "OTTLA_SASL_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def parse(options: dict[str, str]) -> Connection:
    reader = OptionReader(BASE | options)
    connection = parse_connection(reader)
    reader.refuse_rest()
    return connection


def problem(options: dict[str, str]) -> str:
    with pytest.raises(SparkOptionError) as caught:
        parse(options)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown + repr(caught.value)
    return str(caught.value)


def test_a_connection_without_these_options_is_plain() -> None:
    assert parse({}).client_options.security == PLAINTEXT


@pytest.mark.parametrize(
    "options",
    [
        SCRAM,
        {"kafka.Security.Protocol": "sasl_ssl", "KAFKA.SASL.MECHANISMS": "SCRAM-SHA-512"}
        | {"kafka.sasl.jaas.config": SCRAM_JAAS},
    ],
)
def test_a_user_logs_in_by_the_names_of_librdkafka_or_by_a_jaas_text_in_any_case(options: dict[str, str]) -> None:
    security = parse(options).client_options.security
    assert (security.protocol, security.login) == (SecurityProtocol.SASL_SSL, ALICE)


def test_a_jaas_text_of_plain_is_read() -> None:
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    security = parse(options | {"kafka.sasl.jaas.config": PLAIN_JAAS}).client_options.security
    assert security.login == PasswordLogin(SaslMechanism.PLAIN, "alice", Secret(SECRET))


def test_certificates_are_named_by_files_of_the_process_that_connects() -> None:
    options = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM"}
    files = {"kafka.ssl.truststore.location": "/etc/kafka/ca.pem", "kafka.ssl.keystore.location": "/etc/kafka/me.pem"}
    tls = parse(options | files).client_options.security.tls
    assert (tls.ca, tls.certificate) == (CertificateStore("/etc/kafka/ca.pem"), CertificateStore("/etc/kafka/me.pem"))


def test_a_store_of_java_is_named_with_its_password() -> None:
    store = {"kafka.ssl.truststore.location": "/ca.jks", "kafka.ssl.truststore.type": "JKS"}
    connection = parse({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.password": SECRET} | store)
    options = connection.client_options
    assert options.security.tls.ca == CertificateStore("/ca.jks", Secret(SECRET))
    assert SECRET not in f"{connection} {options}"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (SCRAM | {"kafka.sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported"),
        (SCRAM | {"kafka.security.protocol": "PLAINTEXT"}, "security.protocol is PLAINTEXT"),
        (SCRAM | {"kafka.sasl.pasword": SECRET}, "did you mean sasl.password?"),
        (SCRAM | {"kafka.sasl.jaas.config": PLAIN_JAAS}, "PlainLoginModule"),
        (SCRAM | {"kafka.sasl.jaas.config": SCRAM_JAAS.replace(";", "")}, "semicolon"),
        (SCRAM | {"kafka.sasl.jaas.config": SCRAM_JAAS.replace("alice", "bob")}, "contradict each other"),
        ({"kafka.security.protocol": "SASL_SSL"}, "without a login"),
        ({"kafka.ssl.truststore.certificates": SECRET}, "certificates were given"),
        (SCRAM | {"sasl.password": SECRET}, "'sasl.password' is unknown"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_shows_no_secret(options: dict[str, str], named: str) -> None:
    assert named in problem(options)


def test_secrets_are_in_no_text_form_and_reach_other_processes() -> None:
    options = parse_read_options(BASE | TOPIC | SCRAM, is_stream=False)
    ranges = [OffsetRange("clicks", 0, 0, 5)]
    (partition,) = task_partitions(options, ("value",), ranges)
    source = OttlaDataSource(BASE | TOPIC | SCRAM)
    reader = source.reader(StructType([StructField("value", BinaryType())]))
    for shown in (
        options,
        partition,
        source,
        reader,
        source.name(),
        source.schema(),
        options.connection.client_options,
    ):
        assert SECRET not in f"{shown!r} {shown}"
    moved: Connection = pickle.loads(pickle.dumps(options.connection))
    assert moved.client_options.security.login == ALICE


def test_a_file_has_the_settings_and_options_win_over_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={SCRAM_JAAS}\nacks=1\n"
    )
    named = {"clientPropertiesFile": str(file)}
    assert parse(named | {"kafka.sasl.mechanism": "SCRAM-SHA-512"}).client_options.security.login == ALICE
    assert SECRET not in repr(parse(named))


def test_a_file_is_read_by_each_process_when_it_connects(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    connection = parse({"clientPropertiesFile": str(file)})
    file.write_text("security.protocol=PLAINTEXT\n")
    assert connection.client_options.security.protocol is SecurityProtocol.PLAINTEXT
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read"):
        _ = connection.client_options


def test_a_variable_of_the_process_that_connects_counts_where_no_option_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", SECRET)
    without = {name: value for name, value in SCRAM.items() if name != "kafka.sasl.password"}
    assert parse(without).client_options.security.login == ALICE
    connection = parse(SCRAM)
    monkeypatch.setenv("OTTLA_SASL_PASSWORD", "another")
    assert connection.client_options.security.login == ALICE


def test_a_plain_connection_can_be_demanded_against_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_SECURITY_PROTOCOL", "SSL")
    assert parse({}).client_options.security.protocol is SecurityProtocol.SSL
    options = {"kafka.security.protocol": "PLAINTEXT"}
    assert parse(options).client_options.security.protocol is SecurityProtocol.PLAINTEXT


def test_a_shipped_file_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text("")
    monkeypatch.setattr("pyspark.SparkFiles.get", lambda name: str(tmp_path / name))
    options = {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "ca.pem"}
    assert parse(options).client_options.security.tls.ca == SecretFile(str(tmp_path / "ca.pem"))
    missing = {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "other.pem"}
    assert parse(missing).client_options.security.tls.ca == SecretFile("other.pem")


def test_what_connects_beside_a_source_has_its_security() -> None:
    connection = connection_of("broker:9093", SCRAM | {"includeHeaders": "true"}, "ottla-audit")
    options = connection.client_options
    assert (connection.bootstrap, options.client_id, options.security.login) == ("broker:9093", "ottla-audit", ALICE)

"""The pipeline at Apache Kafka over SASL_SSL: Spark, a load, a mirror, and what keeps its state in topics."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import ottla
import ottla.spark
from ottla.audit import AuditTopic, ProducerAudit
from ottla.cli.pipeline.load import command as load
from ottla.client.fetching.messages import Message
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.dead_letters import DeadLetters
from ottla.lost_offsets import LostRange, read_lost_offsets, write_losses
from ottla.mirror import MirrorOptions, Names
from ottla.model.own_names import LOST_OFFSETS_TOPIC
from ottla.protocol.schema import ZERO_UUID
from ottla.registry.schema_topic import SchemaTopic
from ottla.registry.state import RegistryState
from ottla.spark.audit import run_audit
from ottla.spark.mirror import SparkMirror
from ottla.spark.streams import ChangingTable
from ottla.testing.broker import RunningBroker
from tests.interop.security.secure_kafka import PASSWORD, USERNAME, SecureKafka, secure_kafka
from tests.mirror.mirrored import content_of
from tests.peers.kafka_jars import KafkaUnavailable

pytestmark = [pytest.mark.spark, pytest.mark.interop]

MECHANISM: Final = "SCRAM-SHA-512"
VALUES: Final = [b"%d" % number for number in range(40)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    try:
        with secure_kafka(tmp_path_factory.mktemp("secure-kafka")) as running:
            yield running
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def security(secured: SecureKafka) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USERNAME,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(secured.ca_path),
    }


@pytest.fixture(scope="module")
def config(security: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as a file."""
    path = tmp_path_factory.mktemp("config") / "client.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in security.items()))
    return path


@pytest.fixture
def topic(secured: SecureKafka, security: dict[str, str]) -> str:
    """With `VALUES`."""
    name = f"secured-{uuid.uuid4().hex[:8]}"
    with ottla.Producer(secured.address("SASL_SSL"), security=security) as producer:
        producer.send(name, VALUES)
    return name


def connection_of(secured: SecureKafka) -> dict[str, str]:
    """As the official connector has it."""
    return {
        "kafka.bootstrap.servers": secured.address("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{USERNAME}" password="{PASSWORD}";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.ca_path),
    }


def values_of(frame: DataFrame) -> list[bytes]:
    return sorted((bytes(row["value"]) for row in frame.select("value").collect()), key=int)


def files_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_official_connectors_options_log_in_and_spark_records_no_secret(
    spark: SparkSession, secured: SecureKafka, topic: str, tmp_path: Path
) -> None:
    """Spark's web interface shows what its event log has."""
    identity = secured.client_certificate()
    key = identity["ssl.key.pem"]
    connection = connection_of(secured) | {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": identity["ssl.certificate.pem"],
        "kafka.ssl.keystore.key": key,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.spark.secured_program", str(tmp_path)],
        input=json.dumps({"connection": connection, "topic": topic}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, f"{len(VALUES)}\n"), done.stderr
    streamed = spark.read.format("ottla").options(**connection).option("subscribe", f"{topic}-streamed").load()
    assert values_of(streamed) == VALUES
    written = files_below(tmp_path)
    assert b"SparkListenerSQLExecutionStart" in written
    assert b"kafka.sasl.mechanism" in written
    for secret in (PASSWORD, *key.splitlines()[1:-1]):
        assert secret.encode() not in written
        assert secret not in done.stderr


def test_wrong_password_fails_the_query_at_once_and_is_not_shown(
    spark: SparkSession, secured: SecureKafka, topic: str
) -> None:
    connection = connection_of(secured)
    connection["kafka.sasl.jaas.config"] = connection["kafka.sasl.jaas.config"].replace(PASSWORD, f"{PASSWORD}-old")
    with pytest.raises(Exception, match="refused user alice") as caught:
        spark.read.format("ottla").options(**connection).option("subscribe", topic).load().collect()
    assert PASSWORD not in str(caught.value)


def test_streams_and_audits_connect_by_a_file_of_settings(
    spark: SparkSession, secured: SecureKafka, security: dict[str, str], config: Path, topic: str
) -> None:
    address, options = secured.address("SASL_SSL"), {"clientPropertiesFile": str(config)}
    with ottla.Producer(address, security=security) as producer, ProducerAudit(producer) as audit:
        producer.send(topic, b"40").wait()
        audit.publish()
    with AuditTopic(address, security=security) as counts:
        assert [count.records for count in counts.read().counts if count.key.topic == topic] == [1]
    assert topic in [line.topic for line in run_audit(spark, address, options=options).lines]
    with ottla.Producer(address, security=security) as producer:
        producer.send(f"{topic}-table", b"new", key=b"key").wait()
    table = ChangingTable(address, f"{topic}-table", options=options).now(spark)
    assert [bytes(row["value"]) for row in table.collect()] == [b"new"]


def test_state_in_topics_is_written_and_read_over_a_login(
    secured: SecureKafka, security: dict[str, str], topic: str
) -> None:
    address = secured.address("SASL_SSL")
    with DeadLetters(address, security=security) as letters:
        receipt = letters.put(Message(topic, 0, 0, 0, None, b"bad", ()), "unreadable")
    assert receipt.topic == f"{topic}.dead-letter"
    lost = LostRange(topic, ZERO_UUID, 0, 0, 5, "deleted")
    with Cluster(address, ClientOptions(security=ottla.client_security(security))) as cluster:
        write_losses(cluster, LOST_OFFSETS_TOPIC, "reader", [lost])
    assert [entry.lost for entry in read_lost_offsets(address, security=security)] == [lost]
    schemas = SchemaTopic(address, f"{topic}-schemas", ottla.client_security(security))
    try:
        schemas.prepare(1)
        schemas.append([(b"{}", None)], None)
        state = RegistryState()
        schemas.read(state)
        assert state.next_offset == 1
    finally:
        schemas.close()


def run_verb(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert PASSWORD not in done.stdout + done.stderr
    return done


def test_load_reads_its_login_from_a_file(
    spark: SparkSession, secured: SecureKafka, config: Path, topic: str, tmp_path: Path
) -> None:
    """In this process and its session; test_load_command starts a process."""
    given = [topic, "-b", secured.address("SASL_SSL"), "--command-config", str(config), "--json", "--tells-audit"]
    loaded = CliRunner().invoke(load, [*given, "--target", str(tmp_path / "lake")])
    assert PASSWORD not in loaded.output
    assert loaded.exit_code == 0, loaded.output
    assert json.loads(loaded.stdout.splitlines()[-1])["rows"] == len(VALUES)
    found = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().column("value").to_pylist()
    assert sorted(found, key=int) == VALUES
    assert PASSWORD.encode() not in files_below(tmp_path)


def test_mirror_has_a_login_for_each_side(
    spark: SparkSession, secured: SecureKafka, security: dict[str, str], config: Path, topic: str, tmp_path: Path
) -> None:
    address = secured.address("SASL_SSL")
    with RunningBroker() as plain:
        both = ["--source", address, "--source-config", str(config), "--target", plain.bootstrap, "--topics", topic]
        done = run_verb("mirror", "run", *both, "--no-groups", "--once", "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["records"] == len(VALUES)
        status = run_verb("mirror", "status", *both[:-2], "--json", folder=tmp_path)
        assert {json.loads(line)["lag_offsets"] for line in status.stdout.splitlines()} == {0}
        # Back, to where the fence and the progress need the login.
        returned = f"{topic}-back"
        with ottla.Producer(plain.bootstrap) as producer:
            producer.send(returned, VALUES)
        options = MirrorOptions(topics=Names((returned,)), groups=Names(()), session_timeout_ms=6_000)
        report = SparkMirror(spark, plain.bootstrap, address, options, target_security=security).run()
        assert report is not None
        assert (report.counts.records, report.stuck) == (len(VALUES), [])
        assert content_of(secured.kafka.bootstrap, returned) == content_of(plain.bootstrap, returned)

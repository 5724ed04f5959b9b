"""Ottla's clients and command line at Apache Kafka with TLS and SASL: each mechanism, and what each refusal says."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import trustme

import ottla
import ottla.aio
from ottla.audit import ProducerAudit
from ottla.client.admin.admin import Admin
from ottla.client.wire import waiting
from ottla.client.wire.address import Address
from ottla.client.wire.cluster import Cluster
from ottla.client.wire.options import ClientOptions
from ottla.client.wire.security.settings import ClientSecurity
from ottla.client.wire.transport import TcpTransport, dial_tcp
from ottla.dead_letters import DeadLetters
from ottla.errors import AuthenticationFailed, BrokerUnreachable, ListenerMismatch, OttlaError, TlsFailed
from ottla.registry.schema_topic import SchemaTopic
from ottla.runtime.clock import SystemClock
from ottla.runtime.event_loop import run
from tests.command_line import ottla as run_verb
from tests.interop.security.identity_provider import CLIENT_ID, CLIENT_SECRET
from tests.interop.security.secure_kafka import PASSWORD, SESSION_MS, USERNAME, SecureKafka, secure_kafka
from tests.peers.kafka_jars import KafkaUnavailable, find_java

BIG_BYTES: Final = 900_000
MESSAGES_COUNT: Final = 500


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    try:
        with secure_kafka(tmp_path_factory.mktemp("secure-kafka")) as running:
            yield running
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))


def password_login(protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": USERNAME,
        "sasl.password": password,
    }


def settings_of(secured: SecureKafka, listener: str, mechanism: str | None) -> dict[str, str]:
    """The right ones."""
    ca = {"ssl.ca.location": str(secured.ca_path)}
    if listener == "SSL":
        return {"security.protocol": "SSL", **ca}
    if listener == "MTLS":
        return {"security.protocol": "SSL", **ca, **secured.client_certificate()}
    if mechanism == "OAUTHBEARER":
        return {
            "security.protocol": "SASL_SSL",
            **ca,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": secured.provider.url,
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        }
    assert mechanism is not None
    protocol = "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT"
    return {**password_login(protocol, mechanism), **(ca if protocol == "SASL_SSL" else {})}


WAYS: Final = [
    ("SSL", None),
    ("MTLS", None),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "OAUTHBEARER"),
]


def open_cluster(secured: SecureKafka, listener: str, security: ClientSecurity | Mapping[str, object]) -> Cluster:
    given = ottla.client_security(security)
    return Cluster(secured.address(listener), ClientOptions(call_timeout_ms=30_000, security=given))


@pytest.fixture
def topic(secured: SecureKafka) -> str:
    name = f"secured-{uuid.uuid4().hex[:8]}"
    with Cluster(secured.kafka.bootstrap) as cluster:
        Admin(cluster).create_topic(name, 3)
    return name


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_messages_pass_through_each_face_of_the_client(
    secured: SecureKafka, topic: str, listener: str, mechanism: str | None
) -> None:
    address, security = secured.address(listener), settings_of(secured, listener, mechanism)
    with ottla.Producer(address, security=security, acks="all") as producer:
        producer.send(topic, [b"%d" % number for number in range(MESSAGES_COUNT)])
        producer.send(topic, bytes(BIG_BYTES), partition=0)
    with ottla.ConsumerConnector(
        address, group=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, security=security
    ) as connector:
        stream = connector.create_message_streams({topic: 1})[topic][0]
        found = [next(stream).value for _ in range(MESSAGES_COUNT + 1)]
        connector.commit()
    assert sorted(value for value in found if value is not None and len(value) < BIG_BYTES) == sorted(
        b"%d" % number for number in range(MESSAGES_COUNT)
    )
    with ottla.SimpleConsumer(address, topic, 0, security=security) as consumer:
        assert consumer.latest() - consumer.earliest() > 0
        assert consumer.fetch(consumer.earliest())


def test_dead_letters_and_counts_of_a_producer_use_its_security(secured: SecureKafka, topic: str) -> None:
    address, security = secured.address("SASL_SSL"), settings_of(secured, "SASL_SSL", "SCRAM-SHA-256")
    with ottla.Producer(address, security=security) as producer, ProducerAudit(producer) as audit:
        producer.send(topic, b"bad", partition=0).wait(60_000)
        audit.publish(timeout_ms=60_000)
    with (
        ottla.SimpleConsumer(address, topic, 0, security=security) as consumer,
        DeadLetters(address, security=security) as dead_letters,
    ):
        receipt = dead_letters.put(consumer.fetch(consumer.earliest())[0], ValueError("bad"))
    assert receipt.topic == f"{topic}.dead-letter"


def test_the_schema_registry_keeps_its_topic_at_a_secure_cluster(secured: SecureKafka, topic: str) -> None:
    security = ottla.client_security(settings_of(secured, "SASL_SSL", "SCRAM-SHA-512"))
    schemas = SchemaTopic(secured.address("SASL_SSL"), f"schemas-of-{topic}", security)
    try:
        schemas.prepare(1)
    finally:
        schemas.close()
    with Cluster(secured.kafka.bootstrap) as cluster:
        assert cluster.partitions(f"schemas-of-{topic}") == [0]


@pytest.mark.parametrize(("listener", "mechanism"), [("SASL_SSL", "SCRAM-SHA-512"), ("SSL", None)])
def test_messages_pass_through_the_faces_for_asyncio(
    secured: SecureKafka, topic: str, listener: str, mechanism: str | None
) -> None:
    address, security = secured.address(listener), settings_of(secured, listener, mechanism)

    async def use() -> bytes | None:
        async with ottla.aio.Producer(address, security=security) as producer:
            await producer.send(topic, b"one")
        async with ottla.aio.ConsumerConnector(
            address, group=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, security=security
        ) as connector:
            streams = await connector.create_message_streams({topic: 1})
            async for message in streams[topic][0]:
                return message.value
        return None

    assert run(use()) == b"one"


@pytest.mark.parametrize(("listener", "mechanism"), [("SASL_SSL", "SCRAM-SHA-256"), ("MTLS", None)])
def test_the_command_line_reads_a_file_of_kafkas_tools(
    secured: SecureKafka, topic: str, listener: str, mechanism: str | None, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    settings = settings_of(secured, listener, mechanism)
    config.write_text("".join(f"{name}={text.replace(chr(10), chr(92) + 'n')}\n" for name, text in settings.items()))
    flags = ["-b", secured.address(listener), "--command-config", str(config)]
    run_verb("produce", topic, *flags, stdin="hello\n")
    assert run_verb("consume", topic, *flags, "--from-beginning", "--until-end").out == "hello\n"
    assert topic in run_verb("topic", "list", *flags).out
    run_verb("group", "list", *flags)


@pytest.mark.parametrize("store_type", ["PKCS12", "JKS"])
def test_the_truststores_of_javas_tools_are_read(secured: SecureKafka, store_type: str, tmp_path: Path) -> None:
    keytool = Path(find_java()).with_name("keytool")
    store, password = tmp_path / "truststore", "changeit"
    imported = subprocess.run(
        [
            *(str(keytool), "-importcert", "-noprompt", "-alias", "ca", "-file", str(secured.ca_path)),
            *("-keystore", str(store), "-storetype", store_type, "-storepass", password),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert imported.returncode == 0, imported.stdout + imported.stderr
    security = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": password,
        "ssl.truststore.type": store_type,
    }
    with open_cluster(secured, "SSL", security) as cluster:
        assert cluster.refresh_once(None, cluster.retrying.deadline()) is not None


def test_the_command_line_reads_the_environment_and_a_secret_file(secured: SecureKafka, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    environment = {
        "OTTLA_SECURITY_PROTOCOL": "SASL_SSL",
        "OTTLA_SASL_MECHANISM": "SCRAM-SHA-512",
        "OTTLA_SASL_USERNAME": USERNAME,
        "OTTLA_SASL_PASSWORD_FILE": str(password),
        "OTTLA_SSL_CA_LOCATION": str(secured.ca_path),
    }
    verb = ("topic", "list", "-b", secured.address("SASL_SSL"))
    run_verb(*verb, environment=environment)
    password.write_text("wrong")
    refused = run_verb(*verb, environment=environment, status=1)
    assert "error: " in refused.err
    assert "hint: " in refused.err


def refusal(secured: SecureKafka, listener: str, security: Mapping[str, object]) -> OttlaError:
    with open_cluster(secured, listener, security) as cluster, pytest.raises(OttlaError) as refused:
        cluster.connect_any(cluster.retrying.deadline())
    assert refused.value.hint
    assert PASSWORD not in str(refused.value)
    return refused.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_once(secured: SecureKafka, mechanism: str) -> None:
    security = {
        **password_login("SASL_SSL", mechanism, "wrong"),
        "ssl.ca.location": str(secured.ca_path),
    }
    error = refusal(secured, "SASL_SSL", security)
    assert isinstance(error, AuthenticationFailed)
    assert "sasl.password" in str(error.hint)


def test_a_token_for_another_audience_is_refused_with_a_hint(secured: SecureKafka) -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.ca.location": str(secured.ca_path),
    }
    foreign = ottla.client_security(given, token_source=lambda: secured.provider.token(audience="another"))
    with open_cluster(secured, "SASL_SSL", foreign) as cluster, pytest.raises(AuthenticationFailed) as refused:
        cluster.connect_any(cluster.retrying.deadline())
    assert "token" in str(refused.value.hint)


def test_an_identity_provider_that_refuses_the_client_is_named(secured: SecureKafka) -> None:
    security = settings_of(secured, "SASL_SSL", "OAUTHBEARER") | {"sasl.oauthbearer.client.secret": "wrong"}
    error = refusal(secured, "SASL_SSL", security)
    assert isinstance(error, AuthenticationFailed)
    assert "invalid_client" in str(error)


def test_a_mechanism_that_is_not_enabled_names_those_that_are(secured: SecureKafka) -> None:
    error = refusal(secured, "SASL_PLAINTEXT", password_login("SASL_PLAINTEXT", "SCRAM-SHA-512"))
    assert isinstance(error, AuthenticationFailed)
    assert "PLAIN" in str(error)
    assert "SCRAM-SHA-256" in str(error)


def test_a_login_at_a_listener_without_sasl_is_a_mismatch(secured: SecureKafka) -> None:
    assert isinstance(refusal(secured, "PLAINTEXT", password_login("SASL_PLAINTEXT", "PLAIN")), ListenerMismatch)


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_a_plain_client_at_a_listener_with_tls_hints_at_the_protocol(secured: SecureKafka, listener: str) -> None:
    assert "SASL_SSL" in str(refusal(secured, listener, {}).hint)


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_tls_at_a_plain_listener_hints_at_the_protocol(secured: SecureKafka, listener: str) -> None:
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(secured.ca_path)}
    assert "security.protocol" in str(refusal(secured, listener, tls).hint)


def test_a_client_without_a_login_hints_at_one(secured: SecureKafka) -> None:
    with open_cluster(secured, "SASL_PLAINTEXT", {}) as cluster, pytest.raises(OttlaError) as refused:
        cluster.refresh_once([], cluster.retrying.deadline())
    assert "requires a login" in str(refused.value.hint)


def test_a_foreign_authority_is_named(secured: SecureKafka) -> None:
    foreign = trustme.CA().cert_pem.bytes().decode()
    error = refusal(secured, "SSL", {"security.protocol": "SSL", "ssl.ca.pem": foreign})
    assert isinstance(error, TlsFailed)
    assert "ssl.ca.location" in str(error.hint)


def test_a_missing_client_certificate_is_named(secured: SecureKafka) -> None:
    error = refusal(secured, "MTLS", {"security.protocol": "SSL", "ssl.ca.location": str(secured.ca_path)})
    assert isinstance(error, TlsFailed)
    assert "ssl.certificate.location" in str(error.hint)


def test_a_client_certificate_of_a_foreign_authority_is_refused(secured: SecureKafka) -> None:
    security = settings_of(secured, "MTLS", None) | secured.client_certificate(trustme.CA())
    error = refusal(secured, "MTLS", security)
    assert isinstance(error, TlsFailed)
    assert "client's certificate" in str(error)


def test_a_producer_reports_a_refusal_at_its_first_message(secured: SecureKafka, topic: str) -> None:
    security = password_login("SASL_PLAINTEXT", "PLAIN", "wrong")
    producer = ottla.Producer(secured.address("SASL_PLAINTEXT"), security=security)
    with pytest.raises(OttlaError) as refused, producer:
        producer.send(topic, b"x").wait(60_000)
    assert any(isinstance(cause, AuthenticationFailed) for cause in _causes(refused.value)), repr(refused.value)


def test_a_consumer_reports_a_refusal(secured: SecureKafka, topic: str) -> None:
    security = password_login("SASL_PLAINTEXT", "PLAIN", "wrong")
    with ottla.ConsumerConnector(secured.address("SASL_PLAINTEXT"), group=topic, security=security) as connector:
        stream = connector.create_message_streams({topic: 1})[topic][0]
        with pytest.raises(OttlaError) as refused:
            next(stream)
    assert any(isinstance(cause, AuthenticationFailed) for cause in _causes(refused.value)), repr(refused.value)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_a_connection_outlives_its_sessions(secured: SecureKafka) -> None:
    """The broker would close it at the first request after `SESSION_MS` without another login (KIP-368)."""
    with open_cluster(secured, "SHORT", password_login("SASL_PLAINTEXT", "SCRAM-SHA-256")) as cluster:
        connection = cluster.connect_any(cluster.retrying.deadline())
        until_ms = cluster.clock.monotonic_ms() + 3 * SESSION_MS
        while cluster.clock.monotonic_ms() < until_ms:
            cluster.refresh_once(None, cluster.retrying.deadline())
        assert connection.is_open
        assert cluster.connect_any(cluster.retrying.deadline()) is connection


def test_a_producer_and_a_consumer_keep_their_connections_through_sessions(
    secured: SecureKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[Address] = []

    def counted(address: Address, on_slow: Callable[[str], None] = lambda reason: None) -> TcpTransport:
        dialled.append(address)
        return dial_tcp(address, on_slow)

    monkeypatch.setattr(waiting, "dial_tcp", counted)
    address, security = secured.address("SHORT"), password_login("SASL_PLAINTEXT", "SCRAM-SHA-256")
    clock = SystemClock()
    with ottla.Producer(address, security=security, linger_ms=0, max_in_flight=5) as producer:
        producer.send(topic, b"first", partition=0).wait(60_000)
        opened_count, sent_count = len(dialled), 1
        until_ms = clock.monotonic_ms() + 3 * SESSION_MS
        while clock.monotonic_ms() < until_ms:
            deliveries = [producer.send(topic, b"more", partition=0) for _ in range(50)]
            sent_count += len([delivery.wait(60_000) for delivery in deliveries])
    # Those after the first are of the leader, which the first message has opened.
    assert len(dialled) == opened_count
    with ottla.SimpleConsumer(address, topic, 0, security=security) as consumer:
        assert consumer.latest() == sent_count


def test_a_broker_that_is_not_there_is_no_matter_of_security(secured: SecureKafka) -> None:
    security = ottla.client_security(settings_of(secured, "SSL", None))
    with Cluster("127.0.0.1:1", ClientOptions(security=security)) as cluster, pytest.raises(BrokerUnreachable):
        cluster.connect_any(cluster.retrying.deadline())
